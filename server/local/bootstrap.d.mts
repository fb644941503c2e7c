export const ROOT: string;
export class BootstrapError extends Error {
  readonly details: string;
}
export function checkNode(): void;
export function ensureDependencies(say: (line: string) => void): Promise<void>;
export function ensurePrismaClient(say: (line: string) => void): Promise<void>;
export function ensureWebBuild(say: (line: string) => void): Promise<void>;
export function ensureTestRunner(say: (line: string) => void): Promise<void>;
export function prepare(
  say: (line: string) => void,
  steps: ((say: (line: string) => void) => Promise<void>)[],
): Promise<void>;
