"""The settings of the PODS paper (arXiv 2504.13818), run again and drawn over its own curves."""
