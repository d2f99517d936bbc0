package main

import (
	"bytes"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// drawing is an SVG of one plot for each section, in two columns.
func drawing(sections []section) []byte {
	const columns = 2
	var rows [][]*plot.Plot
	for n, s := range sections {
		if n%columns == 0 {
			rows = append(rows, make([]*plot.Plot, columns))
		}
		rows[n/columns][n%columns] = plotOf(s)
	}
	canvas := vgsvg.New(columns*11*vg.Centimeter, vg.Length(len(rows))*7*vg.Centimeter)
	tiles := draw.Tiles{Rows: len(rows), Cols: columns, PadX: 8 * vg.Millimeter, PadY: 8 * vg.Millimeter,
		PadTop: 4 * vg.Millimeter, PadBottom: 2 * vg.Millimeter, PadLeft: 2 * vg.Millimeter, PadRight: 4 * vg.Millimeter}
	areas := plot.Align(rows, tiles, draw.New(canvas))
	for i := range rows {
		for j, p := range rows[i] {
			if p != nil {
				p.Draw(areas[i][j])
			}
		}
	}
	var svg bytes.Buffer
	must(canvas.WriteTo(&svg))
	// Arial is as wide as the font that the places of texts were reckoned with.
	return bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,sans-serif;"))
}

func plotOf(s section) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.X.Label.Text = s.Title, s.Unit, "machines"
	for _, f := range []*font.Font{&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font} {
		f.Variant, f.Size = "Sans", 8
	}
	p.Title.TextStyle.Font.Size, p.Title.Padding = 10, 2*vg.Millimeter
	p.X.Scale = plot.LogScale{}
	p.Legend.Top, p.Legend.Left = true, true
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = color.Gray{220}, color.Gray{220}
	p.Add(grid)
	var ticks []plot.Tick
	for i, x := range s.Series {
		var xy plotter.XYs
		for _, at := range x.Points {
			xy = append(xy, plotter.XY{X: float64(at.Machines), Y: at.Value})
			if i == 0 {
				ticks = append(ticks, plot.Tick{Value: float64(at.Machines), Label: thousands(at.Machines)})
			}
		}
		line, points := must2(plotter.NewLinePoints(xy))
		line.Color, line.Width = plotutil.DarkColors[i], vg.Points(1.5)
		points.Color, points.Shape, points.Radius = line.Color, plotutil.Shape(i), vg.Points(2.5)
		p.Add(line, points)
		p.Legend.Add(x.Name, line, points)
	}
	p.X.Tick.Marker = plot.ConstantTicks(ticks)
	// Room for the legend above the lines.
	p.Y.Min, p.Y.Max = 0, math.Max(p.Y.Max, 1e-9)*(1+0.13*float64(len(s.Series)))
	return p
}

func must2[A, B any](a A, b B, err error) (A, B) {
	if err != nil {
		panic(err)
	}
	return a, b
}
