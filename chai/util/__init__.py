"""Tools that know nothing of networks: files, tables, HTML, JSON, numpy on first use."""
