# What several steps need.

proc stage {number of what} {
  puts "chai: $number/$of $what"
  flush stdout
}

proc failed {text} {
  puts "chai: ERROR: $text"
  flush stdout
  error $text
}

# the newest version of an IP that block designs may have: so no version of Vivado is named
proc newest {name} {
  set found [get_ipdefs -all -filter \
    "VLNV =~ xilinx.com:ip:${name}:* && design_tool_contexts =~ *IPI* && UPGRADE_VERSIONS == \"\""]
  if {[llength $found] != 1} {
    failed "this Vivado has no IP $name, or several: \"$found\""
  }
  return [get_property VLNV $found]
}

# Say whether a period of ns is met, with the slack of the worst path; name the fastest clock of the PLL that would be.
# The PLL divides its rate by whole numbers, so other clocks do not exist.
proc judge {period setup hold} {
  global pll_mhz overlay
  set shortest [expr {$period - $setup}]
  set divider [expr {int(ceil($pll_mhz * $shortest / 1000.0 - 1e-6))}]
  set mhz [format %.1f [expr {double($pll_mhz) / $divider}]]
  puts [format "chai: worst path %.3f ns of %.3f ns: setup slack %.3f ns, hold slack %.3f ns" \
    $shortest $period $setup $hold]
  puts "chai: the fastest clock that would close is $mhz MHz"
  if {$hold < 0} {
    failed [format "hold is violated by %.3f ns, at any clock: see reports/timing.rpt" [expr {-$hold}]]
  }
  if {$setup < 0} {
    failed "the clock of [format %.1f [expr {1000.0 / $period}]] MHz is not met: build with --clock $mhz, or another strategy"
  }
}
