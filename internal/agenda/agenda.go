// Package agenda keeps what is due when.
package agenda

import "time"

// An Item is something that is due at a time. It is part of the value it
// stands for, can be on one agenda at a time, and is off it when zero.
type Item[T any] struct {
	Value T
	at    time.Time
	seq   uint64
	place int // index in the heap + 1; 0: on no agenda
}

// On says whether the item is on an agenda.
func (i *Item[T]) On() bool { return i.place != 0 }

// At is when the item is due; the zero time if it is on no agenda.
func (i *Item[T]) At() time.Time {
	if !i.On() {
		return time.Time{}
	}
	return i.at
}

// An Agenda is a heap of items, the earliest first, equal times in the order
// in which they were set. The zero value is empty.
type Agenda[T any] struct {
	heap []*Item[T]
	seq  uint64
}

// Len is the number of items.
func (a *Agenda[T]) Len() int { return len(a.heap) }

// Set puts an item on the agenda, or moves it.
func (a *Agenda[T]) Set(i *Item[T], at time.Time) {
	a.seq++
	i.at, i.seq = at, a.seq
	if i.place == 0 {
		a.heap = append(a.heap, i)
		i.place = len(a.heap)
	}
	a.down(a.up(i.place - 1))
}

// Drop takes an item off the agenda, if it is on it.
func (a *Agenda[T]) Drop(i *Item[T]) {
	if i.place == 0 {
		return
	}
	at, last := i.place-1, len(a.heap)-1
	a.swap(at, last)
	a.heap[last] = nil
	a.heap = a.heap[:last]
	i.place = 0
	if at < last {
		a.down(a.up(at))
	}
}

// Next is when the earliest item is due.
func (a *Agenda[T]) Next() (time.Time, bool) {
	if len(a.heap) == 0 {
		return time.Time{}, false
	}
	return a.heap[0].at, true
}

// Pop takes the earliest item off, if it is due at now.
func (a *Agenda[T]) Pop(now time.Time) (*Item[T], bool) {
	if len(a.heap) == 0 || a.heap[0].at.After(now) {
		return nil, false
	}
	i := a.heap[0]
	a.Drop(i)
	return i, true
}

func (a *Agenda[T]) before(i, j int) bool {
	x, y := a.heap[i], a.heap[j]
	if !x.at.Equal(y.at) {
		return x.at.Before(y.at)
	}
	return x.seq < y.seq
}

func (a *Agenda[T]) swap(i, j int) {
	a.heap[i], a.heap[j] = a.heap[j], a.heap[i]
	a.heap[i].place, a.heap[j].place = i+1, j+1
}

func (a *Agenda[T]) up(i int) int {
	for i > 0 {
		parent := (i - 1) / 2
		if !a.before(i, parent) {
			break
		}
		a.swap(i, parent)
		i = parent
	}
	return i
}

func (a *Agenda[T]) down(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(a.heap); child++ {
			if a.before(child, least) {
				least = child
			}
		}
		if least == i {
			return
		}
		a.swap(i, least)
		i = least
	}
}
