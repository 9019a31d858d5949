# Place and route the accelerator alone, to learn which clock it reaches: vivado -mode batch -source ooc.tcl
#
# Without processor and block design; no bitstream comes of it.

set here [file dirname [file normalize [info script]]]
source [file join $here settings.tcl]
source [file join $here common.tcl]

file mkdir [file join $here reports]
set name [lindex [split $vlnv :] 2]
stage 1 4 "synthesis"
create_project -in_memory -part $part
read_verilog [list [file join $here rtl ${name}.v] [file join $here rtl ${name}_core.v]]
read_xdc [file join $here ooc.xdc]
synth_design -mode out_of_context -top $name -part $part
stage 2 4 "placing"
opt_design
place_design
phys_opt_design
stage 3 4 "routing"
route_design
write_checkpoint -force [file join $here reports ooc.dcp]
stage 4 4 "timing"
report_utilization -file [file join $here reports utilisation.rpt]
report_timing_summary -file [file join $here reports timing.rpt]
# hold means nothing at ports whose other side is not there
judge [get_property PERIOD [get_clocks -of_objects [get_ports aclk]]] [get_property SLACK [get_timing_paths -setup]] 0
