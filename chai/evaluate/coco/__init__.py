"""COCO's files of annotations, and its average precision of boxes."""
