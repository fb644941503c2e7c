import type { ReactNode } from "react";
import { Section } from "./Layout.tsx";
import { RequestForm, type RequestFormProps } from "./RequestForm.tsx";

interface LinkActionProps extends RequestFormProps {
  title: string;
}

/** The page that a link in an email opens: opening it changes nothing, the button does. */
export const LinkAction = ({ title, children, ...form }: LinkActionProps): ReactNode => (
  <Section title={title}>
    <RequestForm {...form}>
      <p>{children}</p>
    </RequestForm>
  </Section>
);
