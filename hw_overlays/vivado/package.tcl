# The accelerator as an IP with the name that the driver looks for. A module reference would have another one.

# a memory-mapped interface of the ports NAME_*: m0_araddr is ARADDR of m0. A master without AW ports only reads
proc memory_mapped {name mode protocol core} {
  set interface [ipx::add_bus_interface $name $core]
  set_property abstraction_type_vlnv xilinx.com:interface:aximm_rtl:1.0 $interface
  set_property bus_type_vlnv xilinx.com:interface:aximm:1.0 $interface
  set_property interface_mode $mode $interface
  foreach port [ipx::get_ports ${name}_* -of_objects $core] {
    set physical [get_property NAME $port]
    set logical [string toupper [string range $physical [string length ${name}_] end]]
    set_property physical_name $physical [ipx::add_port_map $logical $interface]
  }
  parameter $interface PROTOCOL $protocol
  return $interface
}

# a parameter of an interface, which may have it already
proc parameter {interface name value} {
  set found [ipx::get_bus_parameters $name -of_objects $interface]
  if {$found eq ""} {
    set found [ipx::add_bus_parameter $name $interface]
  }
  set_property value $value $found
}

proc package_ip {} {
  global here work part vlnv protocol address_bits registers
  lassign [split $vlnv :] vendor library name version
  create_project -force package [file join $work package] -part $part
  add_files -norecurse [list [file join $here rtl ${name}.v] [file join $here rtl ${name}_core.v]]
  set_property top $name [current_fileset]
  update_compile_order -fileset sources_1

  ipx::package_project -root_dir [file join $work ip] -vendor $vendor -library $library -taxonomy /UserIP -import_files
  set core [ipx::current_core]
  set_property name $name $core
  if {$version ne "1.0"} { ;# which is what an IP has that says nothing
    set_property version $version $core
  }

  # all interfaces are defined here: what Vivado infers by itself depends on its version, and on whether a master writes
  ipx::remove_all_bus_interface $core
  foreach map [ipx::get_memory_maps * -of_objects $core] {
    ipx::remove_memory_map [lindex $map 2] $core
  }
  set registers_bus [memory_mapped s_axi slave AXI4LITE $core]
  ipx::add_memory_map s_axi $core
  set_property slave_memory_map_ref s_axi $registers_bus
  ipx::add_address_block Reg [ipx::get_memory_maps s_axi -of_objects $core]
  set_property range $registers [ipx::get_address_blocks Reg -of_objects [ipx::get_memory_maps s_axi -of_objects $core]]

  foreach name {m0 m1 m2 m3} {
    set bus [memory_mapped $name master $protocol $core]
    parameter $bus SUPPORTS_NARROW_BURST 0
    if {[ipx::get_address_spaces $name -of_objects $core] eq ""} {
      ipx::add_address_space $name $core
    }
    set_property master_address_space_ref $name $bus
    set_property range [expr {1 << $address_bits}] [ipx::get_address_spaces $name -of_objects $core]
  }

  foreach {port kind} {aclk clock aresetn reset interrupt interrupt} {
    ipx::infer_bus_interface $port xilinx.com:signal:${kind}_rtl:1.0 $core
  }
  set clock [ipx::get_bus_interfaces aclk -of_objects $core]
  parameter $clock ASSOCIATED_BUSIF s_axi:m0:m1:m2:m3
  parameter $clock ASSOCIATED_RESET aresetn
  parameter [ipx::get_bus_interfaces aresetn -of_objects $core] POLARITY ACTIVE_LOW
  parameter [ipx::get_bus_interfaces interrupt -of_objects $core] SENSITIVITY LEVEL_HIGH

  set_property ipi_drc {ignore_freq_hz true} $core
  ipx::create_xgui_files $core
  ipx::update_checksums $core
  ipx::save_core $core
  close_project
}
