"""Find networks: shipped ones, published weights, and files that a user names."""
