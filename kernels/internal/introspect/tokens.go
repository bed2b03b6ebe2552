package introspect

import (
	"go/scanner"
	"go/token"
	"strings"
)

type lexeme struct {
	tok      token.Token
	lit      string
	from, to int // byte offsets
}

// scanTokens returns the tokens of a cell with its comments, without invalid characters.
func scanTokens(code string) []lexeme {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("cell", -1, len(code))
	s.Init(file, []byte(code), func(token.Position, string) {}, scanner.ScanComments)
	var list []lexeme
	for {
		pos, t, lit := s.Scan()
		if t == token.EOF {
			return list
		}
		if t == token.ILLEGAL || t == token.SEMICOLON && lit == "\n" {
			continue
		}
		text := lit
		if text == "" || !t.IsLiteral() && !t.IsKeyword() && t != token.COMMENT {
			text = t.String()
		}
		from := file.Offset(pos)
		list = append(list, lexeme{t, text, from, min(from+len(text), len(code))})
	}
}

// isWord reports whether a token may begin a name, as a keyword may before the name is complete.
func (t lexeme) isWord() bool { return t.tok == token.IDENT || t.tok.IsKeyword() }

// enclosingText returns the string or comment around the cursor, if there is one.
func (p *cursorContext) enclosingText() (t lexeme, ok bool) {
	for _, t := range p.tokens {
		if t.from >= p.cursor {
			break
		}
		switch t.tok {
		case token.COMMENT:
			if p.cursor < t.to || strings.HasPrefix(t.lit, "//") && p.cursor == t.to {
				return t, true
			}
		case token.STRING:
			// A string without a closing quote ends at the end of its line.
			open := len(t.lit) < 2 || t.lit[0] != t.lit[len(t.lit)-1]
			if p.cursor < t.to || open && p.cursor == t.to {
				return t, true
			}
		case token.CHAR:
			if p.cursor < t.to {
				return t, true
			}
		}
	}
	return lexeme{}, false
}

// tokensBefore returns the tokens before a byte offset, without comments.
func (p *cursorContext) tokensBefore(offset int) []lexeme {
	var list []lexeme
	for _, t := range p.tokens {
		if t.to > offset {
			break
		}
		if t.tok != token.COMMENT {
			list = append(list, t)
		}
	}
	return list
}

// operandStart returns the byte offset of the operand, such as a.b(c)[d], that ends with list. ok is false
// if none does.
func operandStart(list []lexeme) (from int, ok bool) {
	for i := len(list) - 1; i >= 0; {
		switch t := list[i]; {
		case t.tok == token.IDENT || t.tok.IsLiteral():
			from, ok = t.from, true
			if i < 2 || list[i-1].tok != token.PERIOD {
				return from, true
			}
			i -= 2
		case t.tok == token.RPAREN || t.tok == token.RBRACK || t.tok == token.RBRACE:
			j := matchingBracket(list, i)
			if j < 0 {
				return 0, false
			}
			from, ok = list[j].from, true
			if j == 0 || !continuesOperand(list[j-1], t.tok) {
				return from, t.tok == token.RPAREN
			}
			i = j - 1
		default:
			return from, ok
		}
	}
	return from, ok
}

// continuesOperand reports whether brackets continue the operand before them, as arguments, an index or a
// composite literal. t is the token before the brackets, and closer is the closing bracket.
func continuesOperand(t lexeme, closer token.Token) bool {
	switch t.tok {
	case token.IDENT:
		return true
	case token.RPAREN, token.RBRACK:
		return closer != token.RBRACE
	case token.RBRACE:
		return closer != token.RBRACE
	}
	return false
}

// matchingBracket returns the index of the bracket that list[i] closes, or -1.
func matchingBracket(list []lexeme, i int) int {
	depth := 0
	for ; i >= 0; i-- {
		switch list[i].tok {
		case token.RPAREN, token.RBRACK, token.RBRACE:
			depth++
		case token.LPAREN, token.LBRACK, token.LBRACE:
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// openBrackets returns the unclosed brackets, the outermost first.
func openBrackets(list []lexeme) []lexeme {
	var stack []lexeme
	for _, t := range list {
		switch t.tok {
		case token.LPAREN, token.LBRACK, token.LBRACE:
			stack = append(stack, t)
		case token.RPAREN, token.RBRACK, token.RBRACE:
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
		}
	}
	return stack
}
