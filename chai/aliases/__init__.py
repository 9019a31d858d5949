"""Former names of modules that moved into folders, still importable: `import chai.trace`."""
