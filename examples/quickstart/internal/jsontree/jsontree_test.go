package jsontree_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/seed81ba69f2/provisioner/examples/quickstart/internal/jsontree"
)

func TestParse(t *testing.T) {
	type node = jsontree.Node
	got, rest, err := jsontree.Parse([]byte("{\n \"a\": [1, true,\n null],\n \"b\": \"<\\u0041\", \"a\": {}\n}\ntail"))
	if err != nil {
		t.Fatal(err)
	}
	want := node{Kind: jsontree.Object, Line: 1, Members: []jsontree.Member{
		{Key: "a", Line: 2, Value: node{Kind: jsontree.List, Line: 2, Items: []node{
			{Kind: jsontree.Number, Line: 2, Text: "1"}, {Kind: jsontree.Bool, Line: 2, Text: "true"}, {Line: 3},
		}}},
		{Key: "b", Line: 4, Value: node{Kind: jsontree.Text, Line: 4, Text: "<A"}},
		{Key: "a", Line: 4, Value: node{Kind: jsontree.Object, Line: 4}},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tree (-want +got):\n%s", diff)
	}
	if string(rest) != "\ntail" {
		t.Errorf("rest %q: want %q", rest, "\ntail")
	}
}

func TestErrors(t *testing.T) {
	for _, test := range []struct {
		why, text, want string
		cut             bool
	}{
		{"nothing", " \n", "line 1, column 1: there is no JSON", true},
		{"cut in an object", "{\"a\":\n [1,", "line 2, column 5: the JSON is cut short", true},
		{"cut in a text", "{\"a", "line 1, column 4: the JSON is cut short", true},
		{"a comma too many", "{\n\"a\": 1,\n}", "line 3, column 1: invalid character '}' looking for beginning of object key string", false},
		{"no colon", "{\"a\" 1}", "line 1, column 6: invalid character '1' after object key", false},
		{"other text", "model: x", "line 1, column 1: invalid character 'm' looking for beginning of value", false},
		{"too deep", strings.Repeat("[", 20000), "line 1, column 10001: exceeded max depth", false},
	} {
		t.Run(test.why, func(t *testing.T) {
			_, _, err := jsontree.Parse([]byte(test.text))
			var e *jsontree.Error
			if !errors.As(err, &e) {
				t.Fatalf("error %v: want a *jsontree.Error", err)
			}
			text := strings.Replace(e.Error(), "invalid character '[' exceeded", "exceeded", 1) // as Go 1.27 says it
			if text != test.want || e.Cut != test.cut {
				t.Errorf("%q, cut short: %v: want %q, %v", text, e.Cut, test.want, test.cut)
			}
		})
	}
}

// The tree says what package encoding/json says.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2.5e3,true,null,"x"]}`, "[\n]", `{"a":{"a":{}},"a":1}`, `"\ud800"`, `{"a":1}{`, "[1", "x"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, rest, err := jsontree.Parse(data)
		if err != nil {
			return
		}
		var want any
		if err := json.Unmarshal(data[:len(data)-len(rest)], &want); err != nil {
			return // a number that no float64 holds
		}
		if got := value(root); !reflect.DeepEqual(want, got) {
			t.Errorf("%s:\n got %v\nwant %v", data, got, want)
		}
	})
}

func value(n jsontree.Node) any {
	switch n.Kind {
	case jsontree.Bool:
		return n.Text == "true"
	case jsontree.Number:
		var v float64
		_ = json.Unmarshal([]byte(n.Text), &v)
		return v
	case jsontree.Text:
		return n.Text
	case jsontree.List:
		list := []any{}
		for _, item := range n.Items {
			list = append(list, value(item))
		}
		return list
	case jsontree.Object:
		object := map[string]any{}
		for _, m := range n.Members {
			object[m.Key] = value(m.Value)
		}
		return object
	}
	return nil
}
