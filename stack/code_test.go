package stack_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/zlimit/zlimit-go/internal/proof/check"
	"github.com/zlimit/zlimit-go/stack"
)

// TestPack packs an executable twice, with the same bytes, and unpacks them. executable returns the head of a program
// for Linux on a machine; the head suffices to identify the machine.
func executable(t *testing.T, machine elf.Machine) []byte {
	t.Helper()
	ident := [elf.EI_NIDENT]byte{elf.EI_CLASS: byte(elf.ELFCLASS64), elf.EI_DATA: byte(elf.ELFDATA2LSB), elf.EI_VERSION: byte(elf.EV_CURRENT)}
	copy(ident[:], elf.ELFMAG)
	header := elf.Header64{
		Ident: ident, Type: uint16(elf.ET_EXEC), Machine: uint16(machine), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64,
	}
	var b bytes.Buffer
	check.Fatal(t, "binary.Write()", binary.Write(&b, binary.LittleEndian, header))
	return b.Bytes()
}

func TestPack(t *testing.T) {
	for machine, architecture := range map[elf.Machine]string{elf.EM_X86_64: "x86_64", elf.EM_AARCH64: "arm64"} {
		program := executable(t, machine)
		a, err := stack.Pack(program)
		if err != nil || a.Architecture != architecture {
			t.Fatalf("Pack() = %v, %v, want the architecture %s", a, err, architecture)
		}
		b, err := stack.Pack(program)
		if err != nil || !bytes.Equal(a.Zip, b.Zip) {
			t.Errorf("Pack() differs from run to run: %v", err)
		}
		if c, err := stack.Unpack(a.Zip); err != nil || c.Architecture != architecture {
			t.Errorf("Unpack(Pack()) = %v, %v", c, err)
		}
	}
	for _, bad := range [][]byte{nil, []byte("no zip, and no executable"), executable(t, elf.EM_RISCV)} {
		if _, err := stack.Unpack(bad); err == nil {
			t.Errorf("Unpack(%q) = nil, want an error", bad)
		}
		if _, err := stack.Pack(bad); err == nil {
			t.Errorf("Pack(%q) = nil, want an error", bad)
		}
	}
}
