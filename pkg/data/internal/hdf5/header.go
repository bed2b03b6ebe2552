package hdf5

import (
	"bytes"
	"errors"
	"fmt"
)

// Types of the header messages (section IV.A.2) that this package reads.
const (
	messageDataspace    = 0x01
	messageLinkInfo     = 0x02
	messageDatatype     = 0x03
	messageFill         = 0x05
	messageLink         = 0x06
	messageExternal     = 0x07
	messageLayout       = 0x08
	messageFilters      = 0x0b
	messageContinuation = 0x10
	messageSymbolTable  = 0x11
)

// maxHeaderMessages limits the header messages of an object. Usually there are about ten.
const maxHeaderMessages = 1 << 16

type headerMessage struct {
	kind  int
	data  []byte
	share bool // data contains the address of a shared message
}

// readObjectHeader reads the messages of the object header (section IV.A.1) at position pos.
func (f *File) readObjectHeader(pos int64) ([]headerMessage, error) {
	b, err := f.readBytes(pos, f.clampToFileEnd(pos, 64))
	if err != nil {
		return nil, err
	}
	if bytes.HasPrefix(b, []byte("OHDR")) {
		return f.readObjectHeaderV2(pos, b)
	}
	c := cursor{b: b}
	if v := c.readUint(1); v != 1 {
		return nil, fmt.Errorf("unsupported object header version %d at byte %d: versions 1 and 2 are supported", v, pos)
	}
	c.skip(1 + 2 + 4)
	size := c.readUint(4)
	if c.err != nil {
		return nil, c.err
	}
	return f.readHeaderMessages([]fileRange{{pos + 16, int64(size)}}, func(c *cursor) headerMessage {
		m := headerMessage{kind: int(c.readUint(2))}
		n, flags := int(c.readUint(2)), c.readUint(1)
		c.skip(3)
		m.data, m.share = c.nextBytes(n), flags&2 != 0
		return m
	}, 0)
}

// readObjectHeaderV2 implements readObjectHeader for version 2. b contains the first bytes of the header.
func (f *File) readObjectHeaderV2(pos int64, b []byte) ([]headerMessage, error) {
	c := cursor{b: b, pos: 4}
	if v := c.readUint(1); v != 2 {
		return nil, fmt.Errorf("unsupported object header version %d at byte %d: versions 1 and 2 are supported", v, pos)
	}
	flags := c.readUint(1)
	if flags&0x20 != 0 {
		c.skip(16)
	}
	if flags&0x10 != 0 {
		c.skip(4)
	}
	size := c.readUint(1 << (flags & 3))
	if c.err != nil {
		return nil, c.err
	}
	if size > uint64(f.size) {
		return nil, fmt.Errorf("object header of %d bytes at byte %d exceeds the file of %d bytes: the file is damaged", size, pos, f.size)
	}
	return f.readHeaderMessages([]fileRange{{pos + int64(c.pos), int64(size)}}, func(c *cursor) headerMessage {
		m := headerMessage{kind: int(c.readUint(1))}
		n, own := int(c.readUint(2)), c.readUint(1)
		if flags&4 != 0 {
			c.skip(2)
		}
		m.data, m.share = c.nextBytes(n), own&2 != 0
		return m
	}, 4)
}

type fileRange struct{ pos, size int64 }

// readHeaderMessages reads the messages in the given blocks and their continuation blocks. next parses one
// message. skip is the number of bytes of the signature before, and of the checksum after, the
// messages of a continuation block. It is 0 in version 1, which has neither.
func (f *File) readHeaderMessages(blocks []fileRange, next func(*cursor) headerMessage, skip int64) ([]headerMessage, error) {
	var all []headerMessage
	total := int64(0)
	for i := 0; i < len(blocks); i++ {
		pos, size := blocks[i].pos, blocks[i].size
		if i > 0 {
			pos, size = pos+skip, size-2*skip
		}
		if total += size; total > f.size {
			return nil, errors.New("the blocks of an object header refer to each other in a cycle: the file is damaged")
		}
		b, err := f.readBytes(pos, size)
		if err != nil {
			return nil, err
		}
		// Remaining bytes that are shorter than a message's header are padding.
		for c := (&cursor{b: b}); len(b)-c.pos >= 4+int(4-skip); {
			m := next(c)
			if c.err != nil {
				return nil, fmt.Errorf("object header at byte %d: %w", blocks[0].pos, c.err)
			}
			if m.kind == messageContinuation {
				to := cursor{b: m.data}
				where, length := to.readUint(f.offsets), to.readUint(f.lengths)
				start, err := f.filePosition(where)
				if err = errors.Join(err, to.err); err != nil {
					return nil, fmt.Errorf("continuation of an object header: %w", err)
				}
				if length > uint64(f.size) {
					return nil, fmt.Errorf("continuation of an object header has %d bytes: the file is damaged", length)
				}
				blocks = append(blocks, fileRange{start, int64(length)})
				continue
			}
			if all = append(all, m); len(all) > maxHeaderMessages || len(blocks) > maxHeaderMessages {
				return nil, errors.New("an object has too many header messages: the file is damaged")
			}
		}
	}
	return all, nil
}

// unfollowedLink takes the place of an object's position if the link is a soft or external one,
// which this package does not follow.
const unfollowedLink = -1

// readGroupLinks returns the links of the group at pos: names, and the positions of the objects, or
// unfollowedLink.
func (f *File) readGroupLinks(pos int64) (map[string]int64, error) {
	all, err := f.readObjectHeader(pos)
	if err != nil {
		return nil, err
	}
	links := map[string]int64{}
	for _, m := range all {
		switch m.kind {
		case messageSymbolTable:
			c := cursor{b: m.data}
			tree, heap := c.readUint(f.offsets), c.readUint(f.offsets)
			if c.err != nil {
				return nil, c.err
			}
			if err := f.readOldGroupLinks(tree, heap, links); err != nil {
				return nil, err
			}
		case messageLink:
			name, to, err := f.parseLink(m.data)
			if err != nil {
				return nil, err
			}
			if name != "" {
				links[name] = to
			}
		case messageLinkInfo:
			c := cursor{b: m.data, pos: 1}
			if c.readUint(1)&1 != 0 {
				c.skip(8)
			}
			if heap := c.readUint(f.offsets); c.err == nil && !f.isUndefinedAddress(heap) {
				return nil, errors.New("groups that store their links in a fractal heap are not supported: copy the data sets to a file in h5py's default format (libver earliest)")
			}
		}
	}
	return links, nil
}

// parseLink parses a link message (section IV.A.2.g). pos is the position of the linked object, or
// unfollowedLink.
func (f *File) parseLink(b []byte) (name string, pos int64, err error) {
	c := cursor{b: b}
	version, flags := c.readUint(1), c.readUint(1)
	kind := uint64(0)
	if flags&8 != 0 {
		kind = c.readUint(1)
	}
	if flags&4 != 0 {
		c.skip(8)
	}
	if flags&0x10 != 0 {
		c.skip(1)
	}
	n := c.readUint(1 << (flags & 3))
	if n > uint64(len(b)) {
		n = uint64(len(b))
	}
	name = string(c.nextBytes(int(n)))
	if kind != 0 && c.err == nil {
		return name, unfollowedLink, nil
	}
	to := c.readUint(f.offsets)
	if c.err != nil || version != 1 {
		return "", 0, fmt.Errorf("link message (version %d) is invalid: the file is damaged", version)
	}
	pos, err = f.filePosition(to)
	return name, pos, err
}

// readOldGroupLinks adds the links of a group in the older format: a B-tree of symbol tables (sections
// III.A.1, III.B) and a local heap with the names (section III.D).
func (f *File) readOldGroupLinks(tree, heap uint64, links map[string]int64) error {
	pos, err := f.filePosition(heap)
	if err != nil {
		return err
	}
	b, err := f.readBytes(pos, f.clampToFileEnd(pos, int64(8+2*f.lengths+f.offsets)))
	if err != nil {
		return err
	}
	c := cursor{b: b}
	if string(c.nextBytes(4)) != "HEAP" {
		return fmt.Errorf("local heap signature is missing at byte %d: the file is damaged", pos)
	}
	c.skip(4)
	size := c.readUint(f.lengths)
	c.skip(f.lengths)
	data := c.readUint(f.offsets)
	if c.err != nil {
		return c.err
	}
	if pos, err = f.filePosition(data); err != nil {
		return err
	}
	if size > uint64(f.size) {
		return fmt.Errorf("a local heap has %d bytes, more than the file: the file is damaged", size)
	}
	names, err := f.readBytes(pos, int64(size))
	if err != nil {
		return err
	}
	return f.walkBTree(tree, 0, f.lengths, func(_ []byte, child int64) error {
		return f.readSymbolTable(child, names, links)
	})
}

// readSymbolTable adds the links of a symbol table node (section III.B) to links.
func (f *File) readSymbolTable(pos int64, names []byte, links map[string]int64) error {
	b, err := f.readBytes(pos, f.clampToFileEnd(pos, 8))
	if err != nil {
		return err
	}
	c := cursor{b: b}
	if string(c.nextBytes(4)) != "SNOD" {
		return fmt.Errorf("symbol table signature is missing at byte %d: the file is damaged", pos)
	}
	c.skip(2)
	n := int64(c.readUint(2))
	if c.err != nil {
		return c.err
	}
	each := int64(2*f.offsets + 24)
	if b, err = f.readBytes(pos+8, n*each); err != nil {
		return err
	}
	for ; len(b) > 0; b = b[each:] {
		c := cursor{b: b}
		name, to, cached := c.readUint(f.offsets), c.readUint(f.offsets), c.readUint(4)
		if name >= uint64(len(names)) {
			return errors.New("the name of a link is outside of its heap: the file is damaged")
		}
		text, _, ok := bytes.Cut(names[name:], []byte{0})
		if !ok {
			return errors.New("the name of a link is not terminated: the file is damaged")
		}
		header := int64(unfollowedLink)
		if cached != 2 { // 2 is a soft link
			if header, err = f.filePosition(to); err != nil {
				return err
			}
		}
		links[string(text)] = header
	}
	return nil
}

// walkBTree calls leaf for each entry of a version 1 B-tree (section III.A.1), with its key of
// keyBytes bytes and the position of its child. kind is 0 for symbols and 1 for chunks. The number
// of nodes is limited to what fits into the file, so that a cycle is an error.
func (f *File) walkBTree(tree uint64, kind uint64, keyBytes int, leaf func(key []byte, child int64) error) error {
	left := f.size/int64(8+2*f.offsets) + 1
	var node func(a uint64, level int) error
	node = func(a uint64, level int) error {
		pos, err := f.filePosition(a)
		if err != nil {
			return err
		}
		if left--; left < 0 {
			return errors.New("a B-tree refers to itself: the file is damaged")
		}
		head := int64(8 + 2*f.offsets)
		b, err := f.readBytes(pos, f.clampToFileEnd(pos, head))
		if err != nil {
			return err
		}
		c := cursor{b: b}
		if string(c.nextBytes(4)) != "TREE" || c.readUint(1) != kind {
			return fmt.Errorf("signature of a B-tree is missing at byte %d: the file is damaged", pos)
		}
		depth, n := int(c.readUint(1)), int64(c.readUint(2))
		if level >= 0 && depth != level {
			return fmt.Errorf("node of a B-tree at byte %d has level %d, want %d: the file is damaged", pos, depth, level)
		}
		each := int64(keyBytes + f.offsets)
		if b, err = f.readBytes(pos+head, n*each); err != nil {
			return err
		}
		for ; len(b) > 0; b = b[each:] {
			c := cursor{b: b[keyBytes:]}
			child := c.readUint(f.offsets)
			if depth > 0 {
				if err := node(child, depth-1); err != nil {
					return err
				}
				continue
			}
			to, err := f.filePosition(child)
			if err != nil {
				return err
			}
			if err := leaf(b[:keyBytes], to); err != nil {
				return err
			}
		}
		return nil
	}
	return node(tree, -1)
}
