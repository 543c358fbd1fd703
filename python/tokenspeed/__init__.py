"""A KV-cache-aware batch scheduler for LLM engines, and what one needs to run and study it."""
