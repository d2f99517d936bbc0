package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// describe gives a line for each exported name of a package, and for each
// exported field and method: sorted, with all of its type and without the names
// of parameters, which nobody can depend on.
func describe(pkg *types.Package) []string {
	d := describer{pkg: pkg}
	for _, name := range pkg.Scope().Names() {
		if o := pkg.Scope().Lookup(name); o.Exported() {
			d.object(o)
		}
	}
	slices.Sort(d.lines)
	return slices.Compact(d.lines)
}

type describer struct {
	pkg   *types.Package
	lines []string
}

func (d *describer) add(format string, args ...any) {
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *describer) text(t types.Type) string {
	return types.TypeString(unnamed(t), func(p *types.Package) string {
		if p == d.pkg {
			return ""
		}
		return p.Path()
	})
}

func (d *describer) signature(f *types.Func) string {
	return d.params(f.Signature().TypeParams()) + strings.TrimPrefix(d.text(f.Signature()), "func")
}

func (d *describer) object(o types.Object) {
	switch o := o.(type) {
	case *types.Const:
		d.add("const %s %s = %s", o.Name(), d.text(o.Type()), o.Val().ExactString())
	case *types.Var:
		d.add("var %s %s", o.Name(), d.text(o.Type()))
	case *types.Func:
		d.add("func %s%s", o.Name(), d.signature(o))
	case *types.TypeName:
		d.typeName(o)
	}
}

func (d *describer) typeName(o *types.TypeName) {
	named, ok := o.Type().(*types.Named)
	if o.IsAlias() || !ok {
		d.add("type %s = %s", o.Name(), d.text(types.Unalias(o.Type())))
		return
	}
	head := "type " + o.Name() + d.params(named.TypeParams())
	switch u := named.Underlying().(type) {
	case *types.Struct:
		d.add("%s struct", head)
		d.fields(o.Name(), u)
	case *types.Interface:
		d.add("%s interface", head)
		d.interfaceMethods(o.Name(), u)
		return
	default:
		d.add("%s %s", head, d.text(u))
	}
	d.methods(o.Name(), named)
}

// params are type parameters, each with its constraint.
func (d *describer) params(list *types.TypeParamList) string {
	var texts []string
	for p := range list.TypeParams() {
		texts = append(texts, p.Obj().Name()+" "+d.text(p.Constraint()))
	}
	if texts == nil {
		return ""
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

func (d *describer) fields(owner string, s *types.Struct) {
	for i := range s.NumFields() {
		f := s.Field(i)
		if !f.Exported() {
			continue
		}
		line := fmt.Sprintf("field %s.%s %s", owner, f.Name(), d.text(f.Type()))
		if f.Embedded() {
			line += " embedded"
		}
		if tag := s.Tag(i); tag != "" {
			line += fmt.Sprintf(" `%s`", tag)
		}
		d.add("%s", line)
	}
}

func (d *describer) interfaceMethods(owner string, i *types.Interface) {
	for m := range i.Methods() {
		if m.Exported() {
			d.add("method %s.%s%s", owner, m.Name(), d.signature(m))
		} else {
			d.add("method %s.(unexported)", owner)
		}
	}
	if !i.IsMethodSet() {
		d.add("method %s.(constraint) %s", owner, d.text(i))
	}
}

// methods are those of the type and of its pointer, embedded ones as well.
func (d *describer) methods(owner string, named *types.Named) {
	byValue := types.NewMethodSet(named)
	all := types.NewMethodSet(types.NewPointer(named))
	for selection := range all.Methods() {
		m, ok := selection.Obj().(*types.Func)
		if !ok || !m.Exported() {
			continue
		}
		receiver := owner
		if byValue.Lookup(m.Pkg(), m.Name()) == nil {
			receiver = "(*" + owner + ")"
		}
		d.add("method %s.%s%s", receiver, m.Name(), d.signature(m))
	}
}

// unnamed is the type without the names of parameters and results.
func unnamed(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		return types.NewSignatureType(nil, nil, nil, unnamedTuple(t.Params()), unnamedTuple(t.Results()), t.Variadic())
	case *types.Pointer:
		return types.NewPointer(unnamed(t.Elem()))
	case *types.Slice:
		return types.NewSlice(unnamed(t.Elem()))
	case *types.Map:
		return types.NewMap(unnamed(t.Key()), unnamed(t.Elem()))
	case *types.Chan:
		return types.NewChan(t.Dir(), unnamed(t.Elem()))
	}
	return t
}

func unnamedTuple(vars *types.Tuple) *types.Tuple {
	var all []*types.Var
	for v := range vars.Variables() {
		all = append(all, types.NewParam(v.Pos(), v.Pkg(), "", unnamed(v.Type())))
	}
	return types.NewTuple(all...)
}
