// Package lane bounds how much of one kind of work goes on at once.
package lane

import (
	"maps"
	"slices"
)

// A Lane gives places to waiting values, first come, first served, at most
// Limit at once, and at most KeyLimit at once with one key. A value whose key
// is full holds up only values of that key. The zero key has no limit of its
// own. A Lane has no goroutines and no lock.
type Lane[V any] struct {
	Limit    int
	KeyLimit int

	open    queue[V] // waiting without a key
	keyed   map[string]*line[V]
	turn    queue[*line[V]] // lines with something waiting and room for it
	used    int
	waiting int
	flip    bool // whose turn it is when both kinds wait
}

// A line is what waits and goes on under one key.
type line[V any] struct {
	key    string
	wait   queue[V]
	used   int
	inTurn bool
}

// Used is the number of places taken.
func (l *Lane[V]) Used() int { return l.used }

// Waiting is the number of values that wait.
func (l *Lane[V]) Waiting() int { return l.waiting }

// Push lets a value wait.
func (l *Lane[V]) Push(key string, v V) {
	l.waiting++
	if key == "" {
		l.open.push(v)
		return
	}
	if l.keyed == nil {
		l.keyed = map[string]*line[V]{}
	}
	q := l.keyed[key]
	if q == nil {
		q = &line[V]{key: key}
		l.keyed[key] = q
	}
	q.wait.push(v)
	l.ready(q)
}

// Pop takes the next value for which there is a place, and the place. valid
// says whether a waiting value still wants one; those that do not are dropped.
func (l *Lane[V]) Pop(valid func(V) bool) (V, bool) {
	for l.used < l.Limit && l.waiting > 0 {
		v, q, ok := l.next()
		if !ok {
			break
		}
		l.waiting--
		if !valid(v) {
			l.tidy(q)
			continue
		}
		l.used++
		if q != nil {
			q.used++
			l.ready(q)
		}
		return v, true
	}
	var none V
	return none, false
}

// next picks between values with and without a key in turn.
func (l *Lane[V]) next() (V, *line[V], bool) {
	l.flip = !l.flip
	if l.open.len() > 0 && (l.flip || l.turn.len() == 0) {
		return l.open.pop(), nil, true
	}
	for l.turn.len() > 0 {
		q := l.turn.pop()
		q.inTurn = false
		if q.wait.len() > 0 && q.used < l.KeyLimit {
			v := q.wait.pop()
			l.ready(q)
			return v, q, true
		}
		l.tidy(q)
	}
	if l.open.len() > 0 {
		return l.open.pop(), nil, true
	}
	var none V
	return none, nil, false
}

// Take takes a place for a value without a key that does not wait here, if
// there is one.
func (l *Lane[V]) Take() bool {
	if l.used >= l.Limit {
		return false
	}
	l.used++
	return true
}

// Done gives a place back.
func (l *Lane[V]) Done(key string) {
	l.used--
	if q := l.keyed[key]; q != nil {
		q.used--
		l.ready(q)
		l.tidy(q)
	}
}

// Resize changes the limits; places taken stay taken.
func (l *Lane[V]) Resize(limit, keyLimit int) {
	l.Limit, l.KeyLimit = limit, keyLimit
	for _, key := range slices.Sorted(maps.Keys(l.keyed)) { // in an order that can be repeated
		l.ready(l.keyed[key])
	}
}

func (l *Lane[V]) ready(q *line[V]) {
	if !q.inTurn && q.wait.len() > 0 && q.used < l.KeyLimit {
		q.inTurn = true
		l.turn.push(q)
	}
}

func (l *Lane[V]) tidy(q *line[V]) {
	if q != nil && q.used == 0 && q.wait.len() == 0 && !q.inTurn {
		delete(l.keyed, q.key)
	}
}

// queue is a first-in, first-out list that reuses its memory.
type queue[V any] struct {
	items []V
	head  int
}

func (q *queue[V]) len() int { return len(q.items) - q.head }

func (q *queue[V]) push(v V) {
	if q.head > 32 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, v)
}

func (q *queue[V]) pop() V {
	var none V
	v := q.items[q.head]
	q.items[q.head] = none
	q.head++
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		if cap(q.items) > 1024 {
			q.items = nil
		}
	}
	return v
}
