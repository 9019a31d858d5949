# The block design: the processor, the accelerator with one memory port for each of its masters, and its interrupt.

set control_base(zynq7000) 0x40000000
set control_base(zynqmp) 0xA0000000
set ddr_bytes(zynq7000) 0x20000000
set ddr_bytes(zynqmp) 0x80000000

proc block_design {board} {
  global family vlnv
  create_bd_design chai
  create_bd_cell -type ip -vlnv $vlnv accelerator
  if {$family eq "zynq7000"} {
    processor_of_zynq7000 $board
  } else {
    processor_of_zynqmp
  }
  control
  interrupt
  clock_and_reset
  memory
  save_bd_design
  validate_bd_design
}

proc processor_of_zynq7000 {board} {
  global mhz
  create_bd_cell -type ip -vlnv [newest processing_system7] processor
  if {$board ne ""} {
    apply_bd_automation -rule xilinx.com:bd_rule:processing_system7 \
      -config {make_external "FIXED_IO, DDR" apply_board_preset "1" Master "Disable" Slave "Disable" } \
      [get_bd_cells processor]
  } else {
    set_property -dict [processor_without_board] [get_bd_cells processor]
    create_bd_intf_port -mode Master -vlnv xilinx.com:interface:ddrx_rtl:1.0 DDR
    create_bd_intf_port -mode Master -vlnv xilinx.com:display_processing_system7:fixedio_rtl:1.0 FIXED_IO
    connect_bd_intf_net [get_bd_intf_ports DDR] [get_bd_intf_pins processor/DDR]
    connect_bd_intf_net [get_bd_intf_ports FIXED_IO] [get_bd_intf_pins processor/FIXED_IO]
  }
  set_property -dict [list \
    CONFIG.PCW_USE_M_AXI_GP0 {1} \
    CONFIG.PCW_USE_M_AXI_GP1 {0} \
    CONFIG.PCW_USE_S_AXI_ACP {0} \
    CONFIG.PCW_USE_S_AXI_HP0 {1} \
    CONFIG.PCW_USE_S_AXI_HP1 {1} \
    CONFIG.PCW_USE_S_AXI_HP2 {1} \
    CONFIG.PCW_USE_S_AXI_HP3 {1} \
    CONFIG.PCW_S_AXI_HP0_DATA_WIDTH {64} \
    CONFIG.PCW_S_AXI_HP1_DATA_WIDTH {64} \
    CONFIG.PCW_S_AXI_HP2_DATA_WIDTH {64} \
    CONFIG.PCW_S_AXI_HP3_DATA_WIDTH {64} \
    CONFIG.PCW_USE_FABRIC_INTERRUPT {1} \
    CONFIG.PCW_IRQ_F2P_INTR {1} \
    CONFIG.PCW_FPGA_FCLK0_ENABLE {1} \
    CONFIG.PCW_FCLK0_PERIPHERAL_CLKSRC {IO PLL} \
    CONFIG.PCW_FPGA0_PERIPHERAL_FREQMHZ $mhz \
  ] [get_bd_cells processor]
}

proc processor_of_zynqmp {} {
  global mhz data_bits
  create_bd_cell -type ip -vlnv [newest zynq_ultra_ps_e] processor
  apply_bd_automation -rule xilinx.com:bd_rule:zynq_ultra_ps_e -config {apply_board_preset "1" } [get_bd_cells processor]
  set_property -dict [list \
    CONFIG.PSU__USE__M_AXI_GP0 {1} \
    CONFIG.PSU__USE__M_AXI_GP1 {0} \
    CONFIG.PSU__USE__M_AXI_GP2 {0} \
    CONFIG.PSU__USE__S_AXI_GP2 {1} \
    CONFIG.PSU__USE__S_AXI_GP3 {1} \
    CONFIG.PSU__USE__S_AXI_GP4 {1} \
    CONFIG.PSU__USE__S_AXI_GP5 {1} \
    CONFIG.PSU__SAXIGP2__DATA_WIDTH $data_bits \
    CONFIG.PSU__SAXIGP3__DATA_WIDTH $data_bits \
    CONFIG.PSU__SAXIGP4__DATA_WIDTH $data_bits \
    CONFIG.PSU__SAXIGP5__DATA_WIDTH $data_bits \
    CONFIG.PSU__USE__IRQ0 {1} \
    CONFIG.PSU__FPGA_PL0_ENABLE {1} \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__SRCSEL {IOPLL} \
    CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ $mhz \
  ] [get_bd_cells processor]
}

# registers: those of the accelerator and of the interrupt controller
proc control {} {
  global family control_base registers
  create_bd_cell -type ip -vlnv [newest axi_interconnect] control
  set_property -dict [list CONFIG.NUM_SI {1} CONFIG.NUM_MI {2}] [get_bd_cells control]
  create_bd_cell -type ip -vlnv [newest axi_intc] axi_intc_0
  set_property CONFIG.C_IRQ_CONNECTION {1} [get_bd_cells axi_intc_0]
  set master [expr {$family eq "zynq7000" ? "M_AXI_GP0" : "M_AXI_HPM0_FPD"}]
  connect_bd_intf_net [get_bd_intf_pins processor/$master] [get_bd_intf_pins control/S00_AXI]
  connect_bd_intf_net [get_bd_intf_pins control/M00_AXI] [get_bd_intf_pins accelerator/s_axi]
  connect_bd_intf_net [get_bd_intf_pins control/M01_AXI] [get_bd_intf_pins axi_intc_0/s_axi]
  set base $control_base($family)
  create_bd_addr_seg -range $registers -offset $base \
    [get_bd_addr_spaces processor/Data] [get_bd_addr_segs accelerator/s_axi/Reg] SEG_accelerator_Reg
  create_bd_addr_seg -range 0x1000 -offset [format 0x%08X [expr {$base + 0x10000}]] \
    [get_bd_addr_spaces processor/Data] [get_bd_addr_segs axi_intc_0/S_AXI/Reg] SEG_axi_intc_0_Reg
}

# pynq finds an interrupt only behind a controller, and Linux only the first one of the processor
proc interrupt {} {
  global family
  foreach name {to_controller to_processor} {
    create_bd_cell -type ip -vlnv [newest xlconcat] $name
    set_property CONFIG.NUM_PORTS {1} [get_bd_cells $name]
  }
  connect_bd_net [get_bd_pins accelerator/interrupt] [get_bd_pins to_controller/In0]
  connect_bd_net [get_bd_pins to_controller/dout] [get_bd_pins axi_intc_0/intr]
  connect_bd_net [get_bd_pins axi_intc_0/irq] [get_bd_pins to_processor/In0]
  set input [expr {$family eq "zynq7000" ? "IRQ_F2P" : "pl_ps_irq0"}]
  connect_bd_net [get_bd_pins to_processor/dout] [get_bd_pins processor/$input]
}

# one clock and its reset for everything
proc clock_and_reset {} {
  global family
  create_bd_cell -type ip -vlnv [newest proc_sys_reset] reset_0
  if {$family eq "zynq7000"} {
    set clock FCLK_CLK0
    set reset FCLK_RESET0_N
    set inputs {M_AXI_GP0_ACLK S_AXI_HP0_ACLK S_AXI_HP1_ACLK S_AXI_HP2_ACLK S_AXI_HP3_ACLK}
  } else {
    set clock pl_clk0
    set reset pl_resetn0
    set inputs {maxihpm0_fpd_aclk saxihp0_fpd_aclk saxihp1_fpd_aclk saxihp2_fpd_aclk saxihp3_fpd_aclk}
  }
  foreach pin $inputs {
    connect_bd_net [get_bd_pins processor/$clock] [get_bd_pins processor/$pin]
  }
  foreach pin {accelerator/aclk axi_intc_0/s_axi_aclk reset_0/slowest_sync_clk
               control/ACLK control/S00_ACLK control/M00_ACLK control/M01_ACLK} {
    connect_bd_net [get_bd_pins processor/$clock] [get_bd_pins $pin]
  }
  connect_bd_net [get_bd_pins processor/$reset] [get_bd_pins reset_0/ext_reset_in]
  connect_bd_net [get_bd_pins reset_0/interconnect_aresetn] [get_bd_pins control/ARESETN]
  foreach pin {accelerator/aresetn axi_intc_0/s_axi_aresetn
               control/S00_ARESETN control/M00_ARESETN control/M01_ARESETN} {
    connect_bd_net [get_bd_pins reset_0/peripheral_aresetn] [get_bd_pins $pin]
  }
}

# each master has a port of its own, with nothing between: the same protocol and width on both sides, and no decoder.
# So the map below says only where the memory begins; an UltraScale+ reaches what lies above 4 GB too.
proc memory {} {
  global family ddr_bytes
  foreach n {0 1 2 3} {
    if {$family eq "zynq7000"} {
      set port S_AXI_HP$n
      set segment S_AXI_HP$n/HP${n}_DDR_LOWOCM
    } else {
      set port S_AXI_HP${n}_FPD
      set segment SAXIGP[expr {$n + 2}]/HP${n}_DDR_LOW
    }
    connect_bd_intf_net [get_bd_intf_pins accelerator/m$n] [get_bd_intf_pins processor/$port]
    create_bd_addr_seg -range $ddr_bytes($family) -offset 0x00000000 \
      [get_bd_addr_spaces accelerator/m$n] [get_bd_addr_segs processor/$segment] SEG_processor_HP$n
  }
}
