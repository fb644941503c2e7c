import { Paper, Stack, Text } from "@mantine/core";
import type { ReactNode } from "react";
import { useDocumentTitle, useTitleFocus } from "../../components/PageHeader.tsx";
import styles from "./SignIn.module.css";

interface SignInCardProps {
  documentTitle: string;
  title: string;
  lead: string;
  children: ReactNode;
}

/** A page in place of the requested one, until the user has signed in. */
export function SignInCard({ documentTitle, title, lead, children }: SignInCardProps): ReactNode {
  useDocumentTitle(documentTitle);
  useTitleFocus();
  return (
    <Stack gap="lg" className={styles.page}>
      <Stack gap="xs">
        <h1 id="page-title" tabIndex={-1}>
          {title}
        </h1>
        <Text c="dimmed" inherit>
          {lead}
        </Text>
      </Stack>
      <Paper className={styles.card} shadow="var(--shadow)">
        {children}
      </Paper>
    </Stack>
  );
}
