/** The target's answer as a member of ours. Upstream content is only ever data. */
import { readForeignJson } from "../../core/json.ts";

export interface Content {
  data?: unknown;
  dataBase64?: string;
  contentType: string | null;
}

const JSON_TYPE = /^application\/(?:[\w.+-]+\+)?json$/;
const TEXT_TYPE =
  /^(?:text\/[\w.+-]+|application\/(?:[\w.+-]+\+xml|xml|javascript|x-www-form-urlencoded|yaml|x-ndjson|graphql))$/;

export function readContent(header: string | string[] | undefined, body: Buffer): Content {
  const contentType = Array.isArray(header) ? (header[0] ?? null) : (header ?? null);
  if (body.length === 0) return { data: null, contentType };
  const mediaType = (contentType ?? "").split(";", 1)[0]?.trim().toLowerCase() ?? "";
  if (JSON_TYPE.test(mediaType)) {
    const read = readForeignJson(() => JSON.parse(body.toString("utf8")) as unknown);
    // Called JSON, and is not, or too deep to pass on as a value: the text is passed on as it came.
    if (read.ok) return { data: read.value, contentType };
  }
  if (mediaType === "" || TEXT_TYPE.test(mediaType) || JSON_TYPE.test(mediaType)) {
    const text = decodeText(body);
    if (text !== undefined) return { data: text, contentType };
  }
  return { dataBase64: body.toString("base64"), contentType };
}

/** Text that is not UTF-8 stays bytes rather than becoming replacement characters. */
function decodeText(body: Buffer): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(body);
  } catch {
    return undefined;
  }
}
