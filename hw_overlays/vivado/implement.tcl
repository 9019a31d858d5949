# Synthesis, placing, routing, the check of the clock, and the two files that pynq loads.

proc synthesise {} {
  global jobs
  set_property SYNTH_CHECKPOINT_MODE Hierarchical [get_files chai.bd]
  make_wrapper -files [get_files chai.bd] -import -fileset sources_1 -top
  set_property top chai_wrapper [current_fileset]
  update_compile_order -fileset sources_1
  set_property strategy Flow_PerfOptimized_high [get_runs synth_1]
  set_property strategy Performance_ExtraTimingOpt [get_runs impl_1]
  set_property STEPS.POST_ROUTE_PHYS_OPT_DESIGN.IS_ENABLED true [get_runs impl_1]
  launch_runs synth_1 -jobs $jobs
  wait_on_run synth_1
}

proc implement {} {
  global jobs work
  launch_runs impl_1 -to_step write_bitstream -jobs $jobs
  wait_on_run impl_1
  if {![file exists [file join $work project chai.runs impl_1 chai_wrapper.bit]]} {
    failed "Vivado wrote no bitstream: see work/project/chai.runs/*/runme.log"
  }
}

proc check_clock {} {
  global here mhz
  open_run impl_1
  report_timing_summary -file [file join $here reports timing.rpt]
  report_utilization -hierarchical -file [file join $here reports utilisation.rpt]
  set clock [get_clocks -of_objects [get_pins -hierarchical -filter {NAME =~ *accelerator/aclk}]]
  if {[llength $clock] != 1} {
    failed "the accelerator has no clock that timing knows: \"$clock\""
  }
  set period [get_property PERIOD $clock]
  if {abs($period * $mhz / 1000.0 - 1) > 0.005} {
    failed "the accelerator's clock has a period of $period ns, expected [format %.3f [expr {1000.0 / $mhz}]] ns"
  }
  set unclocked [check_timing -override_defaults no_clock -no_header -return_string]
  if {[regexp {(\d+) register} $unclocked -> number] && $number > 0} {
    failed "$number registers have no clock: their timing is unknown"
  }
  judge $period [get_property SLACK [get_timing_paths -setup]] [get_property SLACK [get_timing_paths -hold]]
}

proc export_results {} {
  global here work overlay
  # newer versions have the handoff in .gen, older ones in .srcs
  set handoffs [glob -nocomplain [file join $work project chai.gen sources_1 bd chai hw_handoff chai.hwh] \
    [file join $work project chai.srcs sources_1 bd chai hw_handoff chai.hwh]]
  if {$handoffs eq ""} {
    failed "Vivado wrote no chai.hwh"
  }
  file copy -force [file join $work project chai.runs impl_1 chai_wrapper.bit] [file join $here $overlay.bit]
  file copy -force [lindex $handoffs 0] [file join $here $overlay.hwh]
  puts "chai: [file join $here $overlay.bit] and $overlay.hwh are written"
}
