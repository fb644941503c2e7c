// Makes mutants of a SQL function: the same function with one small change in its body. It reads tokens, not a
// syntax tree, so a few mutants are not valid SQL; Postgres refuses those and they do not count.

/** @typedef {{file: string, at: number, from: string, to: string, line: number, end: number}} SqlMutant */

const OPPOSITES = {
  "<": ["<="],
  "<=": ["<"],
  ">": [">="],
  ">=": [">"],
  "<>": ["="],
  "=": ["<>"],
  "+": ["-"],
  "-": ["+"],
  AND: ["OR"],
  OR: ["AND"],
  TRUE: ["FALSE"],
  FALSE: ["TRUE"],
  GREATEST: ["LEAST"],
  LEAST: ["GREATEST"],
  MIN: ["max"],
  MAX: ["min"],
  DESC: ["ASC"],
};
/** What ends a condition at its own depth of brackets. */
const ENDS = new Set(
  "THEN ORDER GROUP LIMIT RETURNING FOR UNION ON WHEN ELSE END LOOP AS SET WHERE INTO FROM USING".split(
    " ",
  ),
);
const BEGINS = new Set(["WHERE", "IF", "ELSIF", "WHEN", "ON", "FILTER"]);
const STATEMENT = /^(PERFORM|UPDATE|INSERT|DELETE|SELECT|RETURN)$/;

/** Words, numbers, operators and strings of the body, with their places; comments are left out. */
function tokensOf(text, from, to) {
  const pattern =
    /--[^\n]*|'(?:[^']|'')*'|"[^"]*"|[A-Za-z_][A-Za-z_0-9]*|[0-9]+|:=|=>|<=|>=|<>|\^@|->>|->|#>>|::|\|\||[^\s]/gy;
  const tokens = [];
  pattern.lastIndex = from;
  let depth = 0;
  while (pattern.lastIndex < to) {
    const at = pattern.lastIndex;
    const found = pattern.exec(text);
    if (!found) {
      pattern.lastIndex = at + 1;
      continue;
    }
    const [word] = found;
    if (word.startsWith("--")) continue;
    if (word === ")") depth -= 1;
    tokens.push({ word, upper: word.toUpperCase(), at, end: at + word.length, depth });
    if (word === "(") depth += 1;
  }
  return tokens;
}

/** @returns {SqlMutant[]} */
export function mutantsOfSql(file, text) {
  const open = text.indexOf("$$") + 2;
  const tokens = tokensOf(text, open, text.indexOf("$$", open));
  const isProcedural = /LANGUAGE plpgsql/i.test(text.slice(0, open));
  const begin = isProcedural ? tokens.findIndex(({ upper }) => upper === "BEGIN") + 1 : 0;
  const mutants = [];
  const seen = new Set();
  const add = (first, last, to) => {
    const from = text.slice(first.at, last.end);
    if (from.toUpperCase() === to.toUpperCase() || seen.has(`${first.at} ${last.end} ${to}`))
      return;
    seen.add(`${first.at} ${last.end} ${to}`);
    const line = text.slice(0, first.at).split("\n").length;
    mutants.push({ file, at: first.at, end: last.end, from, to, line });
  };
  tokens.forEach((token, index) => {
    if (index < begin && token.word !== "interval") return;
    replaceToken(tokens, index, add);
    if (token.upper === "COALESCE") replaceCoalesce(tokens, index, text, add);
    if (isProcedural) removeStatement(tokens, index, add);
    if (token.upper === "SET" && tokens[index - 1]) removeAssignments(tokens, index, add);
  });
  for (const chain of conditionsOf(tokens.slice(begin))) replaceConditions(chain, add);
  return mutants;
}

function replaceToken(tokens, index, add) {
  const token = tokens[index];
  const [before, next, second] = [tokens[index - 1], tokens[index + 1], tokens[index + 2]];
  const isAssignment = token.word === "=" && isInSet(tokens, index);
  const isBetween = token.upper === "AND" && tokens[index - 2]?.upper === "BETWEEN";
  const isSign = token.word === "-" && /^[(,=]|INTERVAL$/i.test(before?.word ?? "(");
  if (!isAssignment && !isBetween && !isSign)
    for (const to of OPPOSITES[token.upper] ?? []) add(token, token, to);
  // The 1 of EXISTS (SELECT 1 ...) and of PERFORM 1 is nothing.
  const isNothing = /^(SELECT|PERFORM)$/.test(before?.upper) && next?.upper === "FROM";
  if (/^[0-9]+$/.test(token.word) && !isNothing) add(token, token, String(BigInt(token.word) + 1n));
  if (/^'[0-9]+ [a-z]+'$/.test(token.word))
    add(
      token,
      token,
      token.word.replace(/[0-9]+/, (digits) => String(Number(digits) + 1)),
    );
  if (token.upper === "IS" && next?.upper === "NULL") add(token, next, "IS NOT NULL");
  if (token.upper === "IS" && next?.upper === "NOT" && second?.upper === "NULL")
    add(token, second, "IS NULL");
  if (token.upper === "NOT" && before?.upper !== "IS" && !/^(LOCKED|IN|FOUND)$/.test(next?.upper))
    add(token, token, "");
  if (token.upper === "NOT" && /^(IN|FOUND)$/.test(next?.upper)) add(token, token, "");
  if (token.upper === "FOR" && /^(UPDATE|SHARE|NO)$/.test(next?.upper)) {
    const last = tokens.findIndex((one, at) => at > index && /^[;)]$/.test(one.word));
    add(token, tokens[last - 1], "");
  }
}

/** Whether the equals sign assigns: the nearest clause before it at its depth is SET. */
function isInSet(tokens, index) {
  for (let at = index - 1; at >= 0 && tokens[at].word !== ";"; at -= 1) {
    if (tokens[at].depth > tokens[index].depth) continue;
    if (tokens[at].depth < tokens[index].depth) return false;
    if (/^(WHERE|FROM|RETURNING|CASE|WHEN|AND|OR|ON)$/.test(tokens[at].upper)) return false;
    if (tokens[at].upper === "SET") return true;
  }
  return false;
}

function closing(tokens, open) {
  return tokens.findIndex(
    (one, at) => at > open && one.word === ")" && one.depth === tokens[open].depth,
  );
}

function replaceCoalesce(tokens, index, text, add) {
  const close = closing(tokens, index + 1);
  const depth = tokens[index + 1].depth + 1;
  const comma = tokens.findIndex(
    (one, at) => at > index && one.word === "," && one.depth === depth,
  );
  if (comma < 0 || comma > close) return;
  add(tokens[index], tokens[close], text.slice(tokens[index + 2].at, tokens[comma - 1].end));
  add(tokens[index], tokens[close], text.slice(tokens[comma + 1].at, tokens[close - 1].end));
}

function removeStatement(tokens, index, add) {
  const token = tokens[index];
  const before = tokens[index - 1];
  if (!/^(;|BEGIN|THEN|ELSE|LOOP)$/.test(before?.upper ?? "") || token.depth > 0) return;
  const isAssigned = tokens[index + 1]?.word === ":=" || tokens[index + 3]?.word === ":=";
  if (!STATEMENT.test(token.upper) && !isAssigned) return;
  const last = tokens.findIndex((one, at) => at > index && one.word === ";" && one.depth === 0);
  if (last > 0) add(token, tokens[last], "NULL;");
}

/** SET a = 1, b = 2: without one of them. */
function removeAssignments(tokens, index, add) {
  const depth = tokens[index].depth;
  const parts = [];
  let from = index + 1;
  for (let at = index + 1; at < tokens.length; at += 1) {
    const { word, upper } = tokens[at];
    const isEnd =
      word === ";" ||
      tokens[at].depth < depth ||
      (tokens[at].depth === depth && /^(WHERE|FROM|RETURNING)$/.test(upper));
    if (isEnd || (word === "," && tokens[at].depth === depth)) {
      parts.push([from, at - 1]);
      from = at + 1;
    }
    if (isEnd) break;
  }
  if (parts.length < 2) return;
  parts.forEach(([first, last], part) =>
    part === 0
      ? add(tokens[first], tokens[last + 1], "")
      : add(tokens[first - 1], tokens[last], ""),
  );
}

/** Each condition, as its parts between AND and OR. */
function* conditionsOf(tokens) {
  for (const [index, token] of tokens.entries()) {
    const isBracket =
      token.word === "(" && tokens[index + 1] && !/^(SELECT|VALUES)$/.test(tokens[index + 1].upper);
    if (!BEGINS.has(token.upper) && !isBracket) continue;
    let depth = tokens[index + 1]?.depth ?? 0;
    const parts = [];
    let from = index + 1;
    let cases = 0;
    let hasLink = false;
    for (let at = index + 1; at <= tokens.length; at += 1) {
      const one = tokens[at];
      if (one?.upper === "CASE" && one.depth === depth) cases += 1;
      const isInside = cases > 0;
      if (one?.upper === "END" && one.depth === depth && cases > 0) {
        cases -= 1;
        continue;
      }
      if (isInside) continue;
      const isOver =
        !one ||
        one.depth < depth ||
        (one.depth === depth &&
          (/^[;,]$/.test(one.word) || (ENDS.has(one.upper) && !isDistinctFrom(tokens, at))));
      const isLink =
        !isOver &&
        one.depth === depth &&
        /^(AND|OR)$/.test(one.upper) &&
        tokens[at - 2]?.upper !== "BETWEEN";
      if (isOver || isLink) {
        if (at > from)
          parts.push({
            first: tokens[from],
            last: tokens[at - 1],
            link: isLink ? one.upper : undefined,
          });
        from = at + 1;
        hasLink ||= isLink;
      }
      if (isOver) break;
    }
    if (parts.length > 0 && (BEGINS.has(token.upper) || hasLink)) yield parts;
  }
}

function isDistinctFrom(tokens, at) {
  return tokens[at].upper === "FROM" && tokens[at - 1]?.upper === "DISTINCT";
}

function replaceConditions(parts, add) {
  if (parts.length === 1) {
    add(parts[0].first, parts[0].last, "TRUE");
    add(parts[0].first, parts[0].last, "FALSE");
    return;
  }
  parts.forEach(({ first, last, link }, index) => {
    const near = link ?? parts[index - 1].link;
    add(first, last, near === "AND" ? "TRUE" : "FALSE");
  });
}

/** The statement that installs a mutant, or the function as it is. */
export function installing(text, mutant) {
  const body = mutant ? text.slice(0, mutant.at) + mutant.to + text.slice(mutant.end) : text;
  const end = body.indexOf("$$;") + 3;
  return body
    .slice(body.indexOf("CREATE FUNCTION"), end)
    .replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION");
}
