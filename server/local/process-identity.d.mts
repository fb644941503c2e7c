export function identityOf(pid: number | undefined): string | null;
