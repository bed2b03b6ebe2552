package cell

import (
	"fmt"
	"go/scanner"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A SyntaxError is the error of a cell that does not parse.
type SyntaxError struct {
	Line, Column int // counted from 1; the column in bytes
	Message      string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("line %d, column %d: %s", e.Line, e.Column, e.Message)
}

var parserMessage = regexp.MustCompile(`^cell:(\d+):(\d+): (.*?)(?: \(and \d+ more errors\))?$`)

// explainSyntax returns the error for a cell that the parser rejects with err. It looks for the place of the
// fault, which the parser may notice later, and for Python code. code must not contain commands.
func explainSyntax(code string, err error) error {
	m := parserMessage.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	line, _ := strconv.Atoi(m[1])
	column, _ := strconv.Atoi(m[2])
	message := plainWords.Replace(m[3])
	lines := strings.Split(code, "\n")
	if strings.HasSuffix(message, "string literal not terminated") && !strings.Contains(lines[line-1], `"""`) {
		return &SyntaxError{line, column, message + ": the closing quote is missing"}
	}
	if advice := adviseSyntax(lines[line-1], m[3]); advice != "" {
		return &SyntaxError{line, column, message + "; " + advice}
	}
	tokens := scan(code)
	if e := findMissingBrace(tokens); e != nil && strings.HasPrefix(message, "expected '{'") {
		return e
	}
	if e := findUnbalanced(tokens, line, column); e != nil {
		return e
	}
	if strings.Contains(message, "before newline in") {
		message += "; a list over several lines ends each line with a comma"
	}
	return &SyntaxError{line, column, message}
}

// plainWords replaces the parser's names of tokens.
var plainWords = strings.NewReplacer("'IDENT' ", "", "'STRING' ", "", "'INT' ", "", "'FLOAT' ", "", "'CHAR' ", "",
	"'IDENT'", "a name", "'STRING'", "a text in quotes", "'EOF'", "the end of the cell", "found newline", "found the end of the line")

type lexeme struct {
	tok          token.Token
	lit          string
	line, column int
}

// scan returns the tokens of a cell, including the semicolons that Go inserts.
func scan(code string) (list []lexeme) {
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("cell", -1, len(code))
	s.Init(file, []byte(code), func(token.Position, string) {}, 0)
	for {
		pos, tok, lit := s.Scan()
		if tok == token.EOF {
			return list
		}
		p := file.Position(pos)
		list = append(list, lexeme{tok, lit, p.Line, p.Column})
	}
}

// findForeign returns an error for what the interpreter's parser accepts with another meaning or rejects
// elsewhere: an opening brace or else on a line of its own, and a brace where a value begins.
func findForeign(tokens []lexeme) error {
	header := token.ILLEGAL // keyword of the statement whose block has not begun
	depth := 0              // of parentheses and brackets
	for i, t := range tokens {
		newline := i > 0 && tokens[i-1].tok == token.SEMICOLON && tokens[i-1].lit == "\n"
		switch t.tok {
		case token.IF, token.FOR, token.SWITCH, token.SELECT:
			header, depth = t.tok, 0
		case token.FUNC:
			if i == 0 || !slices.Contains([]token.Token{token.IDENT, token.RBRACK, token.RPAREN, token.MUL}, tokens[i-1].tok) { // else a type
				header, depth = t.tok, 0
			}
		case token.LPAREN, token.LBRACK:
			depth++
		case token.RPAREN, token.RBRACK:
			depth--
		case token.IDENT:
			python := slices.Contains([]string{"try", "except", "finally"}, t.lit)
			if python && (i == 0 || newline) && i+1 < len(tokens) && tokens[i+1].tok == token.COLON { // a label
				return &SyntaxError{t.line, t.column, t.lit + " does not exist in Go; " + errorAdvice}
			}
		case token.ELSE:
			if newline {
				return &SyntaxError{t.line, t.column, fmt.Sprintf("else must be on the line of the closing brace, line %d: } else {", tokens[i-1].line)}
			}
		case token.LBRACE:
			if newline && depth == 0 && header != token.ILLEGAL {
				return &SyntaxError{t.line, t.column, fmt.Sprintf("the { after %v must be at the end of line %d, not on a line of its own", header, tokens[i-1].line)}
			}
			if i > 0 && (tokens[i-1].tok == token.ASSIGN || tokens[i-1].tok == token.DEFINE || tokens[i-1].tok == token.RETURN) {
				return &SyntaxError{t.line, t.column, "a value cannot begin with a brace; a map is written map[string]int{\"a\": 1}, a slice []int{1, 2}"}
			}
			if depth == 0 {
				header = token.ILLEGAL
			}
		}
		if newline && depth == 0 && t.tok != token.LBRACE && !t.tok.IsKeyword() {
			header = token.ILLEGAL
		}
	}
	return nil
}

// findMissingBrace finds the first line that begins a block without an opening brace.
func findMissingBrace(tokens []lexeme) error {
	header := token.ILLEGAL
	for i, t := range tokens {
		switch {
		case t.tok == token.IF || t.tok == token.FOR || t.tok == token.SWITCH || t.tok == token.SELECT:
			header = t.tok
		case t.tok == token.LBRACE:
			header = token.ILLEGAL
		case t.tok == token.SEMICOLON && t.lit == "\n" && header != token.ILLEGAL:
			return &SyntaxError{tokens[i-1].line, tokens[i-1].column, fmt.Sprintf("the { after %v is missing at the end of this line", header)}
		}
	}
	return nil
}

// findUnbalanced returns an error for a bracket without its partner, or nil. An unclosed bracket counts if the
// parser failed at or after it, at the given line and column.
func findUnbalanced(tokens []lexeme, line, column int) error {
	closers := map[token.Token]token.Token{token.LPAREN: token.RPAREN, token.LBRACK: token.RBRACK, token.LBRACE: token.RBRACE}
	var open []lexeme
	for _, t := range tokens {
		switch t.tok {
		case token.LPAREN, token.LBRACK, token.LBRACE:
			open = append(open, t)
		case token.RPAREN, token.RBRACK, token.RBRACE:
			if len(open) == 0 {
				return &SyntaxError{t.line, t.column, fmt.Sprintf("this %v closes nothing: there is no bracket open before it", t.tok)}
			}
			last := open[len(open)-1]
			if closers[last.tok] != t.tok {
				return &SyntaxError{t.line, t.column, fmt.Sprintf("found %v, expected %v, which closes the %v of line %d, column %d",
					t.tok, closers[last.tok], last.tok, last.line, last.column)}
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) == 0 {
		return nil
	}
	last := open[len(open)-1]
	if last.line > line || last.line == line && last.column > column {
		return nil
	}
	return &SyntaxError{last.line, last.column, fmt.Sprintf("this %v is not closed: a %v is missing (noticed in line %d)", last.tok, closers[last.tok], line)}
}

// errorAdvice says what Go has in place of exceptions.
const errorAdvice = "errors are values: x, err := f(), then if err != nil { … }; in a cell, an error that is not used ends the cell"

// An idiom is something from Python or another language, and what Go has instead. advice may refer to the groups
// of pattern.
type idiom struct {
	pattern *regexp.Regexp // applied to a line without the contents of its strings
	advice  string
}

// idioms are tried in this order.
var idioms = []idiom{
	{regexp.MustCompile(`^\s*import\s+(?:numpy|scipy)\b`), `Go has import "gonum.org/v1/gonum/mat" and its neighbors in place of numpy`},
	{regexp.MustCompile(`^\s*import\s+pandas\b`), `Go has import "github.com/go-gota/gota/dataframe" in place of pandas`},
	{regexp.MustCompile(`^\s*import\s+matplotlib\b`), `Go has import "gonum.org/v1/plot" in place of matplotlib`},
	{regexp.MustCompile(`^\s*import\s+(?:torch|tensorflow)\b`), `Lockstep has import "lockstep/pkg/train" and "gorgonia.org/gorgonia" in place of them`},
	{regexp.MustCompile(`^\s*import\s+("[^"]*")\s+as\s+(\w+)`), `write import $2 $1`},
	{regexp.MustCompile(`^\s*import\s+([\w./]+)\s+as\s+(\w+)`), `write import $2 "$1"`},
	{regexp.MustCompile(`^\s*import\s+([\w./]+)`), `the path is in quotes: import "$1"`},
	{regexp.MustCompile(`^\s*from\s+(\S+)\s+import\b`), `write import "$1", and the package before each of its names, such as math.Sqrt`},
	{regexp.MustCompile(`^\s*(?:(?:async\s+)?def|function)\b`), `a function is written func f(x float64) float64 { return 2 * x }`},
	{regexp.MustCompile(`^\s*class\s+(\w+)`), `a type is written type $1 struct { X int }, and its methods are functions with a receiver`},
	{regexp.MustCompile(`\[[^\]]*\bfor\b.*\bin\b`), `there are no list comprehensions: append to a slice in a loop`},
	{regexp.MustCompile(`^\s*for\s+(\w+)\s+in\s+range\(\s*([\w.]+(?:\([\w.]*\))?)\s*\)`), `write for $1 := 0; $1 < $2; $1++ { … }`},
	{regexp.MustCompile(`^\s*for\s+(\w+)\s+in\s+(?:range\b|\d)`), `write for $1 := 0; $1 < 10; $1++ { … }`},
	{regexp.MustCompile(`^\s*for\s+(\w+)\s*,\s*(\w+)\s+in\s+(?:enumerate\()?(\w+)`), `write for $1, $2 := range $3 { … }`},
	{regexp.MustCompile(`^\s*for(?:each)?\s+(\w+)\s+in\s+([\w.]+)`), `write for _, $1 := range $2 { … }`},
	{regexp.MustCompile(`^\s*while\s+(?:True|true|1)\b`), `an endless loop is written for { … }`},
	{regexp.MustCompile(`^\s*while\b\s*(.*?)\s*[:{]`), `write for $1 { … }`},
	{regexp.MustCompile(`^\s*elif\b\s*(.*?)\s*[:{]`), `write } else if $1 {`},
	{regexp.MustCompile(`^\s*}?\s*else\s*:`), `write } else {`},
	{regexp.MustCompile(`^\s*(?:try|except\b.*|finally)\s*:|^\s*raise\b`), errorAdvice},
	{regexp.MustCompile(`^\s*with\b.*\bas\b`), `write f, err := os.Open(name), then defer f.Close() in a function`},
	{regexp.MustCompile(`\blambda\b|=>`), `write func(x int) int { return x + 1 }`},
	{regexp.MustCompile(`^\s*@\w`), `there are no decorators: call the function with the function`},
	{regexp.MustCompile(`(?:^|\s)#`), `a comment begins with //`},
	{regexp.MustCompile(`"""|'''`), "a text over several lines is in backquotes: `text`"},
	{regexp.MustCompile("[\u201c\u201d\u201e\u2018\u2019]"), `use straight quotes: "text"`},
	{regexp.MustCompile(`\b[fFrRbB]["']`), `values are put into a text by fmt.Sprintf("x = %v", x)`},
	{regexp.MustCompile(`\b(\w+)\s+if\s+(.+)\s+else\s+(\w+)`), `there is no conditional expression: write if $2 { … } else { … }`},
	{regexp.MustCompile(`\?`), `there is no conditional operator: write if … { … } else { … }`},
	{regexp.MustCompile(`\bis\s+not\s+None\b`), `write != nil`},
	{regexp.MustCompile(`\bis\s+None\b`), `write == nil`},
	{regexp.MustCompile(`[\w)\]]\s+(?:and|or)\s+\S|\bnot\s+\S`), `and, or and not are written &&, || and !`},
	{regexp.MustCompile(`[\w)\]]\s+is\s+\w`), `write == or !=`},
	{regexp.MustCompile(`[\w)\]]\s+in\s+\w`), `to find a value, write a loop over a slice, or _, ok := m[key] for a map`},
	{regexp.MustCompile(`^\s*(?:if|for|switch)\b[^{]*:\s*[^={]*$`), `a block is in braces: { … }`},
	{regexp.MustCompile(`^\s*if\s*\(.*\)\s*[^{]*$`), `a block is in braces: if x > 1 { … }`},
	{regexp.MustCompile(`^\s*assert\b`), `write if !(x == 3) { panic("…") }`},
	{regexp.MustCompile(`^\s*del\s+(\w+)`), `an entry of a map is removed by delete($1, key)`},
	{regexp.MustCompile(`^\s*(?:global|nonlocal)\b`), `a function can use the variables of the session without a declaration`},
	{regexp.MustCompile(`^\s*print\s+\S`), `write fmt.Println(x)`},
	{regexp.MustCompile(`^\s*(len|cap|panic|append|fmt\.\w+)\s+\S`), `arguments are in parentheses: $1(…)`},
	{regexp.MustCompile(`\b(len|cap)\s+(\w+)`), `write $1($2)`},
	{regexp.MustCompile(`^\s*(?:let|auto)\s+(\w+)\s*=`), `a variable is declared by $1 := …`},
	{regexp.MustCompile(`^\s*(int|float|double|string|str|bool|char|long)\s+(\w+)\s*=`), `a variable is declared by $2 := …`},
	{regexp.MustCompile(`\bvar\s+\w+(?:\s+\S+)?\s*:=`), `write var x int = 3 or x := 3`},
	{regexp.MustCompile(`=\s+=`), `write == to compare and = to assign`},
	{regexp.MustCompile(`<>`), `write !=`},
	{regexp.MustCompile(`=:`), `write :=`},
	{regexp.MustCompile(`[\w)\]]\s*\*\*\s*\w`), `a power is math.Pow(x, y)`},
	{regexp.MustCompile(`(?:^|[;{(])\s*(\+\+|--)\s*(\w+)`), `write $2$1`},
	{regexp.MustCompile(`^\s*\w+\s*:?=[^;]*(?:\+\+|--)`), `x++ is a statement of its own and has no value`},
	{regexp.MustCompile(`->`), `write the result type without an arrow: func f(x int) int { … }`},
	{regexp.MustCompile(`^\s*func\b.*\(\s*\w+\s*:`), `write the type after the name without a colon: func f(x int) int { … }`},
	{regexp.MustCompile(`^\s*func\s*\(.*\{`), `a cell's line cannot begin with a function literal: write (func() { … })(), or assign it to a variable`},
	{regexp.MustCompile(`\[\s*:\s*:|\[[^\]]*:[^\]]*:\s*-`), `a slice has no step: write a loop`},
	{regexp.MustCompile(`^\s*!\s*(\w+)`), `a command of the shell begins with $$: $$$1`},
	{regexp.MustCompile(`^\s*[$%]`), `commands must be the first lines of a cell`},
	{regexp.MustCompile(`(?:=|:=|return|\(|,|:)\s*\{`), `a map is written map[string]int{"a": 1}, a slice []int{1, 2}`},
	{regexp.MustCompile(`^\s*\{\s*["'\d]`), `a map is written map[string]int{"a": 1}`},
	{regexp.MustCompile(`\bstruct\s*\{[^}]*,`), `the fields of a struct are on lines of their own, or separated by ;`},
	{regexp.MustCompile(`^\s*for\s*\(`), `write for i := 0; i < 3; i++ { … } without parentheses`},
}

// More patterns of adviseSyntax, which apply only to some messages.
var (
	singleQuoted = regexp.MustCompile(`'((?:[^'\\]|\\.)*)'`)
	pythonList   = regexp.MustCompile(`(?:^|[=(,:]|\breturn\b)\s*\[([^\[\]]*)\]`)
	namedValue   = regexp.MustCompile(`\b(\w+)\(.*\b(\w+)\s*=[^=]`)
	fieldValue   = regexp.MustCompile(`\{.*\b(\w+)\s*=[^=]`)
)

// adviseSyntax returns what to write instead of a line that the parser rejects, or "".
func adviseSyntax(line, message string) string {
	if m := singleQuoted.FindStringSubmatch(line); m != nil && message == "illegal rune literal" && !strings.Contains(line, "'''") {
		return "text is in double quotes: " + strconv.Quote(m[1])
	}
	plain := blankStrings(line)
	if at := pythonList.FindStringSubmatchIndex(plain); at != nil {
		// In []int{1, 2} a type follows the brackets.
		if list, rest := line[at[2]:at[3]], strings.TrimSpace(plain[at[1]:]); !strings.Contains(list, " for ") && (rest == "" || strings.ContainsAny(rest[:1], ")]},;.+")) {
			return "a slice is written " + sliceLiteral(list)
		}
	}
	for _, i := range idioms {
		if m := i.pattern.FindStringSubmatchIndex(plain); m != nil {
			return string(i.pattern.ExpandString(nil, i.advice, line, m))
		}
	}
	switch {
	case message == "expected ')', found ','" && !strings.Contains(plain, "func"):
		return "there are no tuples: write a, b := 1, 2, a slice or a struct"
	case strings.HasPrefix(message, "expected boolean expression") && strings.Contains(plain, ":="):
		return "write the condition after a semicolon: if err := f(); err != nil { … }"
	case strings.HasPrefix(message, "expected boolean expression"):
		return "write == to compare"
	case strings.Contains(message, "found '='") && namedValue.MatchString(plain):
		return "a call has no named arguments: pass the values in their order, or a struct such as T{Field: 3}"
	case strings.HasSuffix(message, "in composite literal") && fieldValue.MatchString(plain):
		return "write " + fieldValue.FindStringSubmatch(plain)[1] + ": and the value"
	}
	return ""
}

// sliceLiteral converts the elements of a Python list to a Go literal.
func sliceLiteral(list string) string {
	element := "int"
	switch {
	case strings.ContainsAny(list, `"'`):
		element, list = "string", singleQuoted.ReplaceAllString(list, `"$1"`)
	case strings.Contains(list, "."):
		element = "float64"
	}
	return "[]" + element + "{" + list + "}"
}

// blankStrings removes a comment, and replaces the contents of strings by blanks of the same length.
func blankStrings(line string) string {
	b := []byte(line)
	var quote byte
	for i := 0; i < len(b); i++ {
		switch c := b[i]; {
		case quote == 0 && (c == '"' || c == '\'' || c == '`'):
			quote = c
		case quote == 0 && c == '/' && strings.HasPrefix(line[i:], "//"):
			return string(b[:i])
		case c == quote:
			quote = 0
		case quote != 0:
			b[i] = ' '
			if c == '\\' && quote != '`' && i+1 < len(b) {
				i++
				b[i] = ' '
			}
		}
	}
	return string(b)
}
