// Package show gives a value the forms in which a notebook can show it: MIME
// type to content, always with a text form for a front-end that can do no more.
//
// A value says by its methods what it has (HTML() string, SVG() string, and so
// on; see Forms). A gota DataFrame or Series, a *plot.Plot and an image.Image
// have no such method and are drawn here.
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

// Forms maps a MIME type to the content in it: a string, []byte for pictures
// (JSON makes it base64, which is what a notebook expects), or a JSON value.
type Forms = map[string]any

// The MIME types.
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

// Rich returns the forms of a value that has one beside text. ok is false for a
// value that is only text. An error says that the value could not be drawn.
func Rich(v any) (forms Forms, ok bool, err error) {
	defer func() {
		// A drawing may panic, on an axis without extent for one.
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

// maxElements is how many elements of a slice are shown.
const maxElements = 50

// Elements returns the forms of the elements of a slice or an array of which
// each has a form beside text, such as a list of figures. ok is false for any
// other value.
func Elements(v any) (list []Forms, ok bool, err error) {
	s := reflect.ValueOf(v)
	if !s.IsValid() || s.Kind() != reflect.Slice && s.Kind() != reflect.Array || s.Len() == 0 {
		return nil, false, nil
	}
	if _, whole, err := Rich(v); whole || err != nil {
		return nil, false, nil // the slice has a form of its own
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

// embed gives a drawing an HTML form too: nbconvert's page of a notebook cleans
// an SVG until nothing of it is left, but takes HTML as it is. A picture in the
// page, not its source, so that no style of one touches the other.
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

// Several returns the forms of the values of one expression: one has all its
// forms, and several are one text.
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

// byMethod collects the forms that a value has methods for.
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

// plain is the text form of a value that has a richer one: its own, if it has a
// String method, and otherwise only what it is, since a dump of a drawing's
// fields helps nobody.
func plain(v any) string {
	switch v := v.(type) {
	case fmt.Stringer:
		return v.String()
	case image.Image:
		return fmt.Sprintf("image of %d×%d pixels", v.Bounds().Dx(), v.Bounds().Dy())
	}
	return fmt.Sprintf("(%T)", v)
}

// picture encodes an image.
func picture(img image.Image) (Forms, error) {
	var b bytes.Buffer
	if err := png.Encode(&b, img); err != nil {
		return nil, err
	}
	return Forms{PNG: b.Bytes()}, nil
}
