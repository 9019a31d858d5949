"""Names of modules that are in folders: former ones (`import chai.trace`), and OpenCV's `chai.cv`."""
