"""Module 13: prompts and answers, the cache as a wall, a busy service, prefixes, replicas, pools, drafts, a decoder."""
