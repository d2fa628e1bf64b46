"""Looking into executors."""
