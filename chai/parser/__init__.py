"""Read networks (text -> tree -> messages -> Graph) and caffemodels."""
