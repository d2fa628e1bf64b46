"""AVR: 8-bit microcontrollers, without vectors."""

from sterna.isa.instruction_set import InstructionSet, Spelling

AVR = InstructionSet(
    name="avr",
    spellings=(Spelling(r"avr", 16, ("avr",)),),
    cpus=(("", "avr2"),),
    triples=(("", "avr-unknown-unknown"),),
)

INSTRUCTION_SETS = (AVR,)
