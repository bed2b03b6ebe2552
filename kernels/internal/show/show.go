// Package show converts a value to the forms in which a notebook can show it, by MIME
// type. There is always a text form, for front-ends that support nothing else.
//
// A value provides its forms by methods (HTML() string, SVG() string and so on; see
// Forms). This package draws gota's DataFrame and Series, *plot.Plot and image.Image,
// which have no such methods.
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

// Forms maps a MIME type to content: a string, a []byte for an image (which JSON encodes
// as base64, as notebooks expect), or a JSON value.
type Forms = map[string]any

// MIME types of the forms.
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

// Rich returns the forms of a value that has a form besides text. ok is false if the
// value has only a text form. It returns an error if the value cannot be drawn.
func Rich(v any) (forms Forms, ok bool, err error) {
	defer func() {
		// Drawing may panic, for example on an axis of length zero.
		if r := recover(); r != nil {
			forms, ok, err = nil, true, fmt.Errorf("show %T: %v", v, r)
		}
	}()
	forms, err = rich(v)
	if err != nil {
		return nil, true, fmt.Errorf("show %T: %w", v, err)
	}
	if len(forms) == 0 {
		return nil, false, nil
	}
	if _, has := forms[Text]; !has {
		forms[Text] = plain(v)
	}
	embed(forms)
	return forms, true, nil
}

// maxElements is the maximum number of elements of a slice that are shown.
const maxElements = 50

// Elements returns the forms of the elements of a slice or array if each element has a
// form besides text, as in a list of figures. ok is false for any other value.
func Elements(v any) (list []Forms, ok bool, err error) {
	s := reflect.ValueOf(v)
	if !s.IsValid() || s.Kind() != reflect.Slice && s.Kind() != reflect.Array || s.Len() == 0 {
		return nil, false, nil
	}
	if _, whole, err := Rich(v); whole || err != nil {
		return nil, false, nil // the slice itself has a form
	}
	for i := range min(s.Len(), maxElements) {
		e := s.Index(i)
		if !e.CanInterface() || e.Kind() == reflect.Pointer && e.IsNil() {
			return nil, false, nil
		}
		forms, ok, err := Rich(e.Interface())
		if err != nil {
			return list, true, fmt.Errorf("element %d: %w", i, err)
		}
		if !ok {
			return nil, false, nil
		}
		list = append(list, forms)
	}
	if s.Len() > maxElements {
		list = append(list, Forms{Text: fmt.Sprintf("(%d of %d elements)", maxElements, s.Len())})
	}
	return list, true, nil
}

// embed adds an HTML form to an SVG image, because nbconvert removes the content of SVG
// output from its page, but keeps HTML unchanged. The image is embedded as data and not
// as SVG elements, so that its styles do not affect other images.
func embed(forms Forms) {
	svg, ok := forms[SVG].(string)
	if _, has := forms[HTML]; has || !ok {
		return
	}
	forms[HTML] = fmt.Sprintf(`<img alt="%s" src="data:image/svg+xml;base64,%s"/>`,
		html.EscapeString(fmt.Sprint(forms[Text])), base64.StdEncoding.EncodeToString([]byte(svg)))
}

// All returns the forms of any value.
func All(v any) (Forms, error) {
	forms, ok, err := Rich(v)
	if err != nil || ok {
		return forms, err
	}
	return Forms{Text: Plain(v)}, nil
}

// Several returns the forms of the values of one expression: all forms of a single value,
// or one text for several values.
func Several(vals []any) (Forms, error) {
	if len(vals) == 1 {
		return All(vals[0])
	}
	texts := make([]string, len(vals))
	for i, v := range vals {
		texts[i] = Plain(v)
	}
	return Forms{Text: strings.Join(texts, " ")}, nil
}

func rich(v any) (Forms, error) {
	switch v := v.(type) {
	case dataframe.DataFrame:
		return frame(v)
	case *dataframe.DataFrame:
		if v != nil {
			return frame(*v)
		}
		return nil, nil
	case series.Series:
		return frame(dataframe.New(v))
	case *plot.Plot:
		if v != nil {
			return drawing(v)
		}
		return nil, nil
	}
	if list, ok := v.([]launch.RunStatus); ok {
		return status(nil, list), nil
	}
	if j, ok := v.(sweep); ok && !isNil(v) {
		return status([]string{j.Note(), j.Dir()}, j.Status()), nil
	}
	if forms := byMethod(v); len(forms) > 0 {
		return forms, nil
	}
	if img, ok := v.(image.Image); ok {
		return picture(img)
	}
	return nil, nil
}

// isNil reports whether v is a nil pointer.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}

// byMethod returns the forms that the methods of a value provide.
func byMethod(v any) Forms {
	forms := Forms{}
	if v, ok := v.(interface{ HTML() string }); ok {
		forms[HTML] = v.HTML()
	}
	if v, ok := v.(interface{ Markdown() string }); ok {
		forms[Markdown] = v.Markdown()
	}
	if v, ok := v.(interface{ Latex() string }); ok {
		forms[Latex] = v.Latex()
	}
	if v, ok := v.(interface{ SVG() string }); ok {
		forms[SVG] = v.SVG()
	}
	if v, ok := v.(interface{ PNG() []byte }); ok {
		forms[PNG] = v.PNG()
	}
	if v, ok := v.(interface{ JPEG() []byte }); ok {
		forms[JPEG] = v.JPEG()
	}
	if v, ok := v.(interface{ PDF() []byte }); ok {
		forms[PDF] = v.PDF()
	}
	if v, ok := v.(interface{ JSON() map[string]any }); ok {
		forms[JSON] = v.JSON()
	}
	if v, ok := v.(interface{ JavaScript() string }); ok {
		forms[JavaScript] = v.JavaScript()
	}
	return forms
}

// plain returns the text form of a value that has a richer form: the result of its String
// method, or else only a description of its type, since the fields of a drawing are of no
// use to a reader.
func plain(v any) string {
	switch v := v.(type) {
	case fmt.Stringer:
		return v.String()
	case image.Image:
		return fmt.Sprintf("image of %d×%d pixels", v.Bounds().Dx(), v.Bounds().Dy())
	}
	return fmt.Sprintf("(%T)", v)
}

// picture encodes an image as PNG.
func picture(img image.Image) (Forms, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, err
	}
	return Forms{PNG: b.Bytes()}, nil
}
