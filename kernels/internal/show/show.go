// Package show converts a value to a Jupyter MIME bundle, which contains it in all formats that a notebook
// can show, and always as text, for front-ends that support nothing else.
//
// A value provides formats by methods (HTML() string, SVG() string and so on; see
// renderByMethods). This package draws gota's DataFrame and Series, *plot.Plot and
// image.Image, which have no such methods.
package show

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"html"
	"image"
	"image/png"
	"reflect"
	"strings"

	"github.com/go-gota/gota/dataframe"
	"github.com/go-gota/gota/series"
	"gonum.org/v1/plot"

	"lockstep/pkg/launch"
)

// Bundle maps a MIME type to content: a string, a []byte for an image (JSON encodes it as base64, as
// notebooks expect), or a JSON value.
type Bundle = map[string]any

// MIME types of a bundle.
const (
	Text       = "text/plain"
	HTML       = "text/html"
	Markdown   = "text/markdown"
	Latex      = "text/latex"
	SVG        = "image/svg+xml"
	PNG        = "image/png"
	JPEG       = "image/jpeg"
	PDF        = "application/pdf"
	JSON       = "application/json"
	JavaScript = "application/javascript"
)

// Render returns the MIME bundle of a value. ok is false if the value can be shown only as text. A value
// that cannot be drawn is an error.
func Render(v any) (bundle Bundle, ok bool, err error) {
	defer func() {
		// Drawing may panic, for example on an axis of length zero.
		if r := recover(); r != nil {
			bundle, ok, err = nil, true, fmt.Errorf("show %T: %v", v, r)
		}
	}()
	bundle, err = renderByType(v)
	if err != nil {
		return nil, true, fmt.Errorf("show %T: %w", v, err)
	}
	if len(bundle) == 0 {
		return nil, false, nil
	}
	if _, has := bundle[Text]; !has {
		bundle[Text] = describeBriefly(v)
	}
	addHTML(bundle)
	return bundle, true, nil
}

// maxRenderedElements limits the shown elements of a slice.
const maxRenderedElements = 50

// RenderElements returns the bundles of a slice or array of values that Render supports, such as a list of
// figures. ok is false for any other value.
func RenderElements(v any) (list []Bundle, ok bool, err error) {
	s := reflect.ValueOf(v)
	if !s.IsValid() || s.Kind() != reflect.Slice && s.Kind() != reflect.Array || s.Len() == 0 {
		return nil, false, nil
	}
	if _, whole, err := Render(v); whole || err != nil {
		return nil, false, nil // the slice itself can be rendered
	}
	for i := range min(s.Len(), maxRenderedElements) {
		e := s.Index(i)
		if !e.CanInterface() || e.Kind() == reflect.Pointer && e.IsNil() {
			return nil, false, nil
		}
		bundle, ok, err := Render(e.Interface())
		if err != nil {
			return list, true, fmt.Errorf("element %d: %w", i, err)
		}
		if !ok {
			return nil, false, nil
		}
		list = append(list, bundle)
	}
	if s.Len() > maxRenderedElements {
		list = append(list, Bundle{Text: fmt.Sprintf("(%d of %d elements)", maxRenderedElements, s.Len())})
	}
	return list, true, nil
}

// addHTML adds HTML to a bundle with an SVG image, because nbconvert removes the content of SVG output, but
// not HTML. The image is embedded as data and not as SVG elements, so that its styles do not affect other
// images.
func addHTML(bundle Bundle) {
	svg, ok := bundle[SVG].(string)
	if _, has := bundle[HTML]; has || !ok {
		return
	}
	bundle[HTML] = fmt.Sprintf(`<img alt="%s" src="data:image/svg+xml;base64,%s"/>`,
		html.EscapeString(fmt.Sprint(bundle[Text])), base64.StdEncoding.EncodeToString([]byte(svg)))
}

// RenderAny returns the bundle of any value.
func RenderAny(v any) (Bundle, error) {
	bundle, ok, err := Render(v)
	if err != nil || ok {
		return bundle, err
	}
	return Bundle{Text: formatText(v)}, nil
}

// RenderResults returns the bundle of an expression's values: RenderAny's for one value, or one text for several.
func RenderResults(vals []any) (Bundle, error) {
	if len(vals) == 1 {
		return RenderAny(vals[0])
	}
	texts := make([]string, len(vals))
	for i, v := range vals {
		texts[i] = formatText(v)
	}
	return Bundle{Text: strings.Join(texts, " ")}, nil
}

// renderByType returns a bundle without the text that Render adds, empty if there is only text.
func renderByType(v any) (Bundle, error) {
	switch v := v.(type) {
	case dataframe.DataFrame:
		return renderTable(v)
	case *dataframe.DataFrame:
		if v != nil {
			return renderTable(*v)
		}
		return nil, nil
	case series.Series:
		return renderTable(dataframe.New(v))
	case *plot.Plot:
		if v != nil {
			return renderPlot(v)
		}
		return nil, nil
	}
	if list, ok := v.([]launch.RunStatus); ok {
		return renderStatus(nil, list), nil
	}
	if j, ok := v.(statusReporter); ok && !isNilPointer(v) {
		return renderStatus([]string{j.Note(), j.Dir()}, j.Status()), nil
	}
	if bundle := renderByMethods(v); len(bundle) > 0 {
		return bundle, nil
	}
	if img, ok := v.(image.Image); ok {
		return renderImage(img)
	}
	return nil, nil
}

func isNilPointer(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// renderByMethods returns the results of the methods HTML, Markdown, SVG and so on.
func renderByMethods(v any) Bundle {
	bundle := Bundle{}
	if v, ok := v.(interface{ HTML() string }); ok {
		bundle[HTML] = v.HTML()
	}
	if v, ok := v.(interface{ Markdown() string }); ok {
		bundle[Markdown] = v.Markdown()
	}
	if v, ok := v.(interface{ Latex() string }); ok {
		bundle[Latex] = v.Latex()
	}
	if v, ok := v.(interface{ SVG() string }); ok {
		bundle[SVG] = v.SVG()
	}
	if v, ok := v.(interface{ PNG() []byte }); ok {
		bundle[PNG] = v.PNG()
	}
	if v, ok := v.(interface{ JPEG() []byte }); ok {
		bundle[JPEG] = v.JPEG()
	}
	if v, ok := v.(interface{ PDF() []byte }); ok {
		bundle[PDF] = v.PDF()
	}
	if v, ok := v.(interface{ JSON() map[string]any }); ok {
		bundle[JSON] = v.JSON()
	}
	if v, ok := v.(interface{ JavaScript() string }); ok {
		bundle[JavaScript] = v.JavaScript()
	}
	return bundle
}

// describeBriefly returns the text for a value that can also be shown otherwise: its String method's, or
// else only its type, since the fields of a drawing are of no use to a reader.
func describeBriefly(v any) string {
	switch v := v.(type) {
	case fmt.Stringer:
		return v.String()
	case image.Image:
		return fmt.Sprintf("image of %d×%d pixels", v.Bounds().Dx(), v.Bounds().Dy())
	}
	return fmt.Sprintf("(%T)", v)
}

func renderImage(img image.Image) (Bundle, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, err
	}
	return Bundle{PNG: b.Bytes()}, nil
}
