package tiff

import "fmt"

// ExampleCommand is a command for error messages that converts an unsupported file.
const ExampleCommand = "for example with: convert in.tif -compress zip out.tif (ImageMagick)"

// UnsupportedError is the error for a valid file that this package cannot read. It says how to
// convert the file.
type UnsupportedError string

func (e UnsupportedError) Error() string { return string(e) }

// CheckSinglePage returns an error if the file has several pages. Reduced versions of a page count
// as pages.
func (f *File) CheckSinglePage() error {
	first, n := f.Pages[0], len(f.Pages)
	last := f.Pages[n-1]
	const advice = "save the page to use, such as page 0, as a separate file: convert 'in.tif[0]' -compress zip out.tif (ImageMagick)"
	switch {
	case n > 1 && last.Height < first.Height && last.Width < first.Width:
		return UnsupportedError(fmt.Sprintf("TIFF file is a slide pyramid of %d pages, from %d×%d to %d×%d pixels: %s", n, first.Height, first.Width, last.Height, last.Width, advice))
	case n > 1:
		return UnsupportedError(fmt.Sprintf("TIFF file has %d pages, want 1: save each page as a separate file, or read the file as a volume (data kind stacks)", n))
	case len(first.fields[tagSubIFDs]) > 0:
		return UnsupportedError(fmt.Sprintf("TIFF file is a slide pyramid: its page also has smaller versions (SubIFDs: %d): %s", len(first.fields[tagSubIFDs]), advice))
	}
	return nil
}

// checkCompression returns an error for an unsupported compression.
func (p Page) checkCompression() error {
	c := p.fieldValue(tagCompression, compressionNone)
	switch {
	case c == 0 || c == compressionNone || c == compressionLZW || c == compressionDeflate || c == compressionAdobeDeflate || c == compressionPackBits,
		p.isFaxCompressed() && !p.needsOwnDecoder() && !p.hasSeparatePlanes():
		return nil
	case c == compressionOldJPEG || c == compressionJPEG:
		return UnsupportedError("JPEG compression in TIFF files is not supported: save the file with Deflate compression, " + ExampleCommand)
	}
	return UnsupportedError(fmt.Sprintf("compression %d of %d-bit values is not supported, only none, LZW, Deflate and PackBits: save the file with Deflate compression, %s", c, p.Bits, ExampleCommand))
}
