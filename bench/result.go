package main

import (
	"fmt"
	"strconv"
	"strings"
)

// A section is one table, and one plot: series over the size of the fleet.
type section struct {
	Title  string
	Unit   string
	Series []series
}

// A series is one line of a plot.
type series struct {
	Name   string
	Points []point // the smallest fleet first
}

type point struct {
	Machines int
	Value    float64
}

func (s *section) add(name string, machines int, value float64) {
	p := point{machines, value}
	if x := s.find(name); x != nil {
		x.Points = append(x.Points, p)
	} else {
		s.Series = append(s.Series, series{name, []point{p}})
	}
}

// find is a series by its name, or nil.
func (s *section) find(name string) *series {
	for i := range s.Series {
		if s.Series[i].Name == name {
			return &s.Series[i]
		}
	}
	return nil
}

// last is the value for the largest fleet.
func (s *series) last() float64 { return s.Points[len(s.Points)-1].Value }

// growth is how many times as much the largest fleet has as the second smallest:
// the smallest may be in the processor's caches as a whole.
func (s *series) growth() float64 { return s.last() / s.Points[1].Value }

// most is the largest value in any fleet.
func (s *series) most() float64 {
	most := 0.0
	for _, p := range s.Points {
		most = max(most, p.Value)
	}
	return most
}

// over is the largest quotient of two series in any fleet.
func (s *series) over(other *series) float64 {
	most := 0.0
	for i, p := range s.Points {
		most = max(most, p.Value/other.Points[i].Value)
	}
	return most
}

// table is a section in Markdown, one line for each series.
func (s *section) table() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| %s (%s) |", s.Title, s.Unit)
	for _, p := range s.Series[0].Points {
		fmt.Fprintf(&b, " %s |", thousands(p.Machines))
	}
	b.WriteString("\n| --- |" + strings.Repeat(" ---: |", len(s.Series[0].Points)) + "\n")
	for _, x := range s.Series {
		fmt.Fprintf(&b, "| %s |", x.Name)
		for _, p := range x.Points {
			fmt.Fprintf(&b, " %s |", short(p.Value))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// short is a number with three digits or more.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

func thousands(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
