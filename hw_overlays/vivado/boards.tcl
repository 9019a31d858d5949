# The processor of each board: its preset, if Vivado has the board's file, or what a Zynq-7000 needs without.
#
# On a running board the boot files have set the processor's memory long before a bitstream is loaded. These values say the
# same, so that the .hwh is true.

# the newest board file, "" if there is none
proc board_part {} {
  global board_file family
  set parts [lsort -dictionary [lsearch -all -inline [get_board_parts] *:${board_file}*:*]]
  if {$parts eq "" && $family eq "zynqmp"} {
    failed "Vivado has no board file of $board_file, which sets the processor: install it (Tools > Vivado Store > Boards)"
  }
  if {$parts eq ""} {
    puts "chai: Vivado has no board file of $board_file; the processor is set by boards.tcl"
  }
  return [lindex $parts end]
}

proc processor_without_board {} {
  global board_file
  switch -glob $board_file {
    pynq-z* {
      return [list \
        CONFIG.PCW_CRYSTAL_PERIPHERAL_FREQMHZ {50} \
        CONFIG.PCW_APU_PERIPHERAL_FREQMHZ {650} \
        CONFIG.PCW_UIPARAM_DDR_FREQ_MHZ {525} \
        CONFIG.PCW_UIPARAM_DDR_BUS_WIDTH {16 Bit} \
        CONFIG.PCW_UIPARAM_DDR_PARTNO {MT41J256M16 RE-125} \
      ]
    }
    zed {
      return [list CONFIG.PCW_IMPORT_BOARD_PRESET {ZedBoard}]
    }
    default {
      failed "boards.tcl does not know $board_file"
    }
  }
}
