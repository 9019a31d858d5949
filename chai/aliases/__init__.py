"""Names that modules had before they moved into folders, each importable as it was: `import chai.trace`."""
