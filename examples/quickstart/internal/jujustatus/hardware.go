package jujustatus

import "strings"

// pairs reads "arch=amd64 availability-zone="east wing" tags=a,b": words of
// key=value in any order, where a value, or a whole word, may be quoted. Of a
// key that is there twice the first counts. closed is false if a quote does
// not end; what it holds then goes to the end of the text.
func pairs(s string) (values map[string]string, closed bool) {
	values, closed = map[string]string{}, true
	for {
		s = strings.TrimLeft(s, " \t\r\n")
		if s == "" {
			return values, closed
		}
		var word string
		var whole bool
		word, s, whole = cutWord(s)
		closed = closed && whole
		key, value, ok := strings.Cut(word, "=")
		if _, twice := values[key]; ok && !twice {
			values[key] = value
		}
	}
}

// cutWord takes the first word off, its quotes removed. A quote opens at the
// beginning of the word or right after its first "=", so that an apostrophe
// inside a value is only that; a backslash inside quotes keeps what follows.
func cutWord(s string) (word, rest string, closed bool) {
	var b strings.Builder
	var quote byte
	fresh, key := true, true
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0 && c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			b.WriteByte(c)
		case c == ' ', c == '\t', c == '\r', c == '\n':
			return b.String(), s[i:], true
		case fresh && (c == '"' || c == '\''):
			quote = c
		default:
			b.WriteByte(c)
			fresh = key && c == '='
			key = key && c != '='
			continue
		}
		fresh = false
	}
	return b.String(), "", quote == 0
}

// list splits "a,b" and drops what is empty.
func list(s string) []string {
	var all []string
	for _, item := range strings.Split(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			all = append(all, item)
		}
	}
	return all
}
