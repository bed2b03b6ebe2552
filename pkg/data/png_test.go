package data_test

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
)

// withSize gives a PNG file another width and height, with a right checksum
// (PNG specification, 5.3 and 11.2.1: IHDR starts at byte 12, its 13 bytes of
// data at 16, its CRC at 29).
func withSize(file []byte, height, width uint32) []byte {
	b := slices.Clone(file)
	binary.BigEndian.PutUint32(b[16:], width)
	binary.BigEndian.PutUint32(b[20:], height)
	binary.BigEndian.PutUint32(b[29:], crc32.ChecksumIEEE(b[12:29]))
	return b
}
