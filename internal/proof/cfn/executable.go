package cfn

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
)

// Executable returns the smallest file that is a program for Linux on arm64, to all who only look.
func Executable() []byte {
	var b bytes.Buffer
	header := elf.Header64{
		Ident:   [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:    uint16(elf.ET_EXEC),
		Machine: uint16(elf.EM_AARCH64),
		Version: uint32(elf.EV_CURRENT),
		Ehsize:  64,
	}
	_ = binary.Write(&b, binary.LittleEndian, header) // into memory
	return b.Bytes()
}
