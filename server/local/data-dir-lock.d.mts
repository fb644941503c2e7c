export function lockDataDir(dataDir: string): { heldBy: number } | { release: () => void };
export function holderOf(dataDir: string): number | null;
