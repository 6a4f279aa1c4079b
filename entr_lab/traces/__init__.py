"""The rollout record on disk: one row a token, one row a sequence, Parquet."""
