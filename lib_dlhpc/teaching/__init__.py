"""Material around the modules: questions with four options, worked problems, what a concept test says of a class."""
