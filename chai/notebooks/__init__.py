"""Notebooks: ``pynq get-notebooks chai`` copies them to a board, and they run as well on a PC."""
