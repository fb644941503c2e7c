export function leftBehind(patienceMs?: number): Promise<string[]>;
