"""Run evaluations in parallel: batches dispatched to processes of this machine or of a cluster."""
