package template_test

import (
	"fmt"

	"lockstep/pkg/logread/internal/template"
)

func ExampleParse() {
	t, err := template.Parse("Epoch {epoch}: loss {train_loss} time {seconds}, *")
	if err != nil {
		fmt.Println(err)
		return
	}
	values := make([]template.Value, len(t.Fields()))
	if t.Match([]byte("Epoch 3: loss 0.2972 time 2m05s, 1.4 GB"), values) {
		for i, f := range t.Fields() {
			fmt.Println(f.Name, values[i].Number)
		}
	}
	// Output:
	// epoch 3
	// train_loss 0.2972
	// seconds 125
}
