"""Module 13: prompts and answers, the cache as a wall, a busy service, replicas, drafts, a decoder here."""
