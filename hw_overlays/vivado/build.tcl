# Build a bitstream: vivado -mode batch -source build.tcl
#
# settings.tcl, which chai writes beside this file, says for which board. Results: NAME.bit, NAME.hwh and reports/.
# A line that begins with "chai:" tells how far it is; the build fails if the clock is not met.

set here [file dirname [file normalize [info script]]]
set work [file join $here work]
source [file join $here settings.tcl]
source [file join $here common.tcl]
source [file join $here boards.tcl]
source [file join $here package.tcl]
source [file join $here design.tcl]
source [file join $here implement.tcl]

file mkdir $work [file join $here reports]
stage 1 6 "the accelerator as an IP"
package_ip
stage 2 6 "block design"
create_project -force chai [file join $work project] -part $part
set board [board_part]
if {$board ne ""} {
  set_property board_part $board [current_project]
}
set_property ip_repo_paths [file join $work ip] [current_project]
update_ip_catalog
block_design $board
stage 3 6 "synthesis"
synthesise
stage 4 6 "placing and routing"
implement
stage 5 6 "timing"
check_clock
stage 6 6 "results"
export_results
