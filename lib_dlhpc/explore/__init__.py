"""Charts and controls: the only room that knows a screen."""
