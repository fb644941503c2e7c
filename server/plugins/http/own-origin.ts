/** Our own origins: PUBLIC_URL's. On a loopback address its other usual spelling is ours as well. */
export interface OwnOrigins {
  origins: ReadonlySet<string>;
  /** `host[:port]` of each, as a sign-in message names its domain. */
  hosts: ReadonlySet<string>;
  isHttps: boolean;
}

const LOOPBACK_NAMES = ["localhost", "127.0.0.1"];

export function ownOrigins(publicUrl: string): OwnOrigins {
  const url = new URL(publicUrl);
  const port = url.port === "" ? "" : `:${url.port}`;
  const hosts = LOOPBACK_NAMES.includes(url.hostname)
    ? LOOPBACK_NAMES.map((name) => `${name}${port}`)
    : [url.host];
  return {
    hosts: new Set(hosts),
    origins: new Set(hosts.map((host) => `${url.protocol}//${host}`)),
    isHttps: url.protocol === "https:",
  };
}
