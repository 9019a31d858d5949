"""Frames of videos, one after another, and their boxes."""
