"""Static timing analysis of the accelerator as yosys maps it: an estimate, since nothing is placed.

``netlist`` reads the cells, ``cells`` and ``delays`` know what each of them takes, ``paths`` has arrival times and levels,
``memories`` finds the output registers of block RAMs, ``summary`` counts, ``report`` prints.
"""
